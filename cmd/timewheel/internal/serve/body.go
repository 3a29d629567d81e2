// SPDX-License-Identifier: MIT

package serve

import (
	"io"
	"mime"
	"net/http"
)

// needType returns an error unless the body of the request has the content type.
func needType(r *http.Request, contentType string) error {
	if is, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || is != contentType {
		return problemf(http.StatusUnsupportedMediaType, "the Content-Type must be %s", contentType)
	}
	return nil
}

// readBody reads the body of a request, which must have the content type.
func readBody(r *http.Request, contentType string, most int64) ([]byte, error) {
	if err := needType(r, contentType); err != nil {
		return nil, err
	}
	var text []byte
	var err error
	if r.ContentLength <= most {
		text, err = io.ReadAll(io.LimitReader(r.Body, most+1))
	}
	switch {
	case r.ContentLength > most, int64(len(text)) > most:
		return nil, problemf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", most)
	case err != nil: // its text names both addresses
		return nil, problemf(http.StatusBadRequest, "the body ended too early, or came too slowly")
	}
	return text, nil
}
