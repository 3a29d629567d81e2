// SPDX-License-Identifier: MIT

package serve

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// parameters returns the query of a request. It may have each of the names once.
func parameters(r *http.Request, names ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // the parameter would be left out, and more tasks would match
		var escape url.EscapeError
		if errors.As(err, &escape) {
			return nil, problemf(http.StatusBadRequest, "the query is malformed: %q is not a %% and two hexadecimal digits", string(escape))
		}
		return nil, problemf(http.StatusBadRequest, "the query is malformed: a ; in a value is %%3B, and & separates the parameters")
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case len(names) == 0:
			return nil, wrongField(cut(name), "", "unknown parameter: there are none")
		case !slices.Contains(names, name):
			return nil, wrongField(cut(name), "", "unknown parameter: it %s", oneOf(name, names))
		case len(q[name]) > 1:
			return nil, wrongField(name, "", "is given twice")
		}
	}
	return q, nil
}

// page returns the query of a list, and its limit. Its parameters are limit, after and the given ones.
func page(r *http.Request, names ...string) (q url.Values, limit int, err error) {
	if q, err = parameters(r, append(names, "limit", "after")...); err != nil {
		return nil, 0, err
	}
	text := q.Get("limit")
	if text == "" {
		return q, 100, nil
	}
	if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostPage {
		return nil, 0, wrongField("limit", fmt.Sprintf("%q", text), "must be 1 to %d", mostPage)
	}
	return q, limit, nil
}
