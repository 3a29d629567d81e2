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

// parameters returns the query of a request, and its mistakes. It may have each of the names once.
func parameters(r *http.Request, names ...string) (_ url.Values, wrong mistakes) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // the parameter would be left out, and more tasks would match
		var escape url.EscapeError
		if errors.As(err, &escape) {
			wrong.add("", "", "the query is malformed: %q is not a %% and two hexadecimal digits", cut(string(escape)))
		} else {
			wrong.add("", "", "the query is malformed: a ; in a value is %%3B, and & separates the parameters")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case len(names) == 0:
			wrong.add(cut(name), "", "unknown parameter: there are none")
		case !slices.Contains(names, name):
			wrong.add(cut(name), "", "unknown parameter: it %s", oneOf(name, names))
		case len(q[name]) > 1:
			wrong.add(name, "", "is given twice")
		}
	}
	return q, wrong
}

// page returns the query of a list, its limit, and its mistakes. Its parameters are limit, after and the given ones.
func page(r *http.Request, names ...string) (q url.Values, limit int, wrong mistakes) {
	q, wrong = parameters(r, append(names, "limit", "after")...)
	text := q.Get("limit")
	if text == "" {
		return q, 100, wrong
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > mostPage {
		wrong.add("limit", fmt.Sprintf("%q", text), "must be 1 to %d", mostPage)
	}
	return q, limit, wrong
}
