// SPDX-License-Identifier: MIT

package serve

import (
	"io"
	"mime"
	"net/http"
	"strings"
)

const (
	mostSmall   = 64 << 10      // bytes of a refused body that package http reads itself, before it sends the answer
	mostDrained = 2 * mostBatch // bytes of a larger refused body that are read
)

// A body is that of a request. It knows whether it has ended, with or without an error.
type body struct {
	io.ReadCloser
	ended bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}

// answerEarly answers a request whose body may not have been read, with a whole answer. It sends the answer first, for callers that read while
// they write. Then it reads the rest: if the connection were closed before, other callers would meet a broken pipe, and
// never read the answer. As for any body, the read deadline is the end.
func answerEarly(w http.ResponseWriter, r *http.Request, write func(http.ResponseWriter)) {
	b, is := r.Body.(*body)
	if !is || b.ended || r.ContentLength >= 0 && r.ContentLength <= mostSmall && r.Header.Get("Expect") == "" {
		write(w)
		return
	}
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex()
	w.Header().Set("Connection", "close")
	write(w)
	_ = control.Flush()
	_, _ = io.CopyN(io.Discard, b, mostDrained)
}

// needType returns an error unless the body of the request has the content type, and no encoding.
func needType(r *http.Request, contentType string) error {
	if is, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || is != contentType {
		return problemf(http.StatusUnsupportedMediaType, "the Content-Type must be %s", contentType)
	}
	if is := strings.Join(r.Header.Values("Content-Encoding"), ", "); is != "" && !strings.EqualFold(is, "identity") {
		return problemf(http.StatusUnsupportedMediaType, "the Content-Encoding %q is unknown: send the body without one", cut(is))
	}
	return nil
}

// readBody reads the body of a request, which must have the content type.
func readBody(r *http.Request, contentType string, most int64) ([]byte, error) {
	if err := needType(r, contentType); err != nil {
		return nil, err
	}
	return readAll(r, most)
}

// readAll reads the body of a request.
func readAll(r *http.Request, most int64) (text []byte, err error) {
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
