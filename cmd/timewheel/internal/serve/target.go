// SPDX-License-Identifier: MIT

package serve

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

const keyPlace = "{key}" // in the url of a kind

// parseURL returns the URL of a kind, with its places for keys. Keys may be in segments of the path, and in values of
// the query.
func parseURL(text string) (*url.URL, error) {
	target, err := url.Parse(text)
	switch {
	case text == "":
		return target, errors.New(`it is missing; a kind that other nodes run has "elsewhere": true`)
	case err != nil || target.Hostname() == "" || target.Scheme != "https" && target.Scheme != "http":
		return target, fmt.Errorf("%q is not an http or https URL with a host", text)
	case target.User != nil || target.Fragment != "":
		return target, errors.New("a user and a fragment are not allowed; headers may have an Authorization")
	case strings.ContainsAny(strings.ReplaceAll(text, keyPlace, ""), "{}"):
		return target, fmt.Errorf("the only place is %s; other braces are %%7B and %%7D", keyPlace)
	}
	for part := range strings.SplitSeq(target.RawQuery, "&") {
		if name, _, _ := strings.Cut(part, "="); strings.Contains(name, keyPlace) {
			return target, fmt.Errorf("%s may be in the path and in values of the query, and not in the name of a parameter", keyPlace)
		}
	}
	if _, err := fill(text, "a"); err != nil {
		return target, errors.New("its path has a segment . or .., which is not allowed")
	}
	return target, nil
}

// fill puts a key into the places of a URL that parseURL accepts. A key changes only its segments and values: all but
// letters, digits, - . _ and ~ is percent-encoded. It returns an error if a segment would be . or .. and so change the path.
func fill(text, key string) (string, error) {
	text = strings.ReplaceAll(text, keyPlace, strings.ReplaceAll(url.QueryEscape(key), "+", "%20"))
	path, _, _ := strings.Cut(text, "?")
	for segment := range strings.SplitSeq(path, "/") {
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			return "", fmt.Errorf("webhook: the key %q cannot be in the path of the url", key)
		}
	}
	return text, nil
}
