// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable"
)

// The headers of a task are its Meta, in JSON. A header is sent only if the kind names it in task_headers.

// taskHeaders checks the names of the headers that the tasks of a kind may have.
func (k *checker) taskHeaders(field string, of *Kind) {
	for i, name := range of.TaskHeaders {
		canonical := http.CanonicalHeaderKey(name)
		switch _, is := of.headers[canonical]; {
		case isReserved(name):
			k.wrong(fmt.Sprintf("%s[%d]", field, i), "a header of the name %q cannot be set", name)
		case is:
			k.wrong(fmt.Sprintf("%s[%d]", field, i), "%q is one of headers, too", name)
		}
		of.TaskHeaders[i] = canonical
	}
}

// isReserved reports whether neither the configuration nor a task can set a header.
func isReserved(name string) bool {
	canonical := http.CanonicalHeaderKey(name)
	return !isToken(name) || strings.HasPrefix(canonical, "Timewheel-") || slices.Contains(ownHeaders, canonical)
}

// isHeaderText reports whether a text can be the value of a header.
func isHeaderText(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// checkHeaders adds the mistakes of the task's headers.
func (t *taskRequest) checkHeaders(wrong *mistakes, of *Kind) {
	if of == nil {
		return // the kind is wrong
	}
	seen := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		field, canonical := "headers."+cut(name), http.CanonicalHeaderKey(name)
		switch {
		case len(of.TaskHeaders) == 0:
			wrong.add(field, "", "is not allowed: the kind names no task_headers")
		case seen[canonical]:
			wrong.add(field, "", "is given twice")
		case !slices.Contains(of.TaskHeaders, canonical):
			wrong.add(field, "", "%s", oneOf(canonical, of.TaskHeaders))
		case !isHeaderText(t.Headers[name]):
			wrong.add(field, "", "is not printable ASCII")
		}
		seen[canonical] = true
	}
	if n := len(t.meta()); n > durable.MaxMeta {
		wrong.add("headers", "", "have %d bytes as JSON; at most %d are allowed", n, durable.MaxMeta)
	}
}

// meta returns the Meta of the task.
func (t *taskRequest) meta() string {
	if len(t.Headers) == 0 {
		return ""
	}
	text, _ := json.Marshal(t.Headers)
	return string(text)
}

// headersOf returns the headers of a task with this Meta, which a program may have set to any text.
func headersOf(meta string) map[string]string {
	var of map[string]string
	if meta == "" || json.Unmarshal([]byte(meta), &of) != nil {
		return nil
	}
	return of
}

// setHeaders sets the headers of a task that its kind allows. The kind's own headers may have one of the names since a
// reload, and win.
func (of *Kind) setHeaders(h http.Header, meta string) {
	for name, value := range headersOf(meta) {
		canonical := http.CanonicalHeaderKey(name)
		if _, is := of.headers[canonical]; !is && slices.Contains(of.TaskHeaders, canonical) && isHeaderText(value) {
			h.Set(name, value)
		}
	}
}
