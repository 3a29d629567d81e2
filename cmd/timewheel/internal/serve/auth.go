// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
)

// A caller has rights for tasks.
type caller struct {
	sum         [sha256.Size]byte // of the token
	prefixes    []string
	kinds       []string
	all         bool // kinds
	read, write bool
}

// anyone is the caller of a service without tokens.
var anyone = &caller{prefixes: []string{""}, all: true, read: true, write: true}

func newCallers(tokens []*Token) (all []*caller) {
	for _, t := range tokens {
		all = append(all, &caller{
			sum: sha256.Sum256([]byte(t.Token)), prefixes: t.Prefixes, kinds: t.Kinds,
			all:  slices.Contains(t.Kinds, "*"),
			read: slices.Contains(t.Rights, mayRead), write: slices.Contains(t.Rights, mayWrite),
		})
	}
	return all
}

// identify returns the caller of the request, or nil if its token is unknown. It takes the same time for all unknown
// tokens of the same length.
func identify(callers []*caller, r *http.Request) (found *caller) {
	if len(callers) == 0 {
		return anyone
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	for _, c := range callers {
		if subtle.ConstantTimeCompare(sum[:], c.sum[:]) == 1 {
			found = c
		}
	}
	return found
}

func (c *caller) hasKey(key string) bool {
	return slices.ContainsFunc(c.prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

func (c *caller) hasKind(kind string) bool { return c.all || slices.Contains(c.kinds, kind) }
