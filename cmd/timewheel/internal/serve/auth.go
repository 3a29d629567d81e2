// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable"
)

// The rights of a token.
const (
	mayRead  = "read"
	mayWrite = "write"
)

// A Token identifies a caller, and names its rights.
type Token struct {
	Name     string   `json:"name"`
	Token    Secret   `json:"token"`
	Prefixes []string `json:"prefixes"` // of the keys; "" is all
	Kinds    []string `json:"kinds"`    // "*" is all
	Rights   []string `json:"rights"`   // read, write
	Quota    *Quota   `json:"quota"`    // none: it may add any number of tasks
}

func (k *checker) token(field string, t *Token, names map[string]bool) {
	if t == nil {
		k.wrong(field, "null is no token")
		return
	}
	if t.Name == "" {
		k.wrong(field+".name", "it is empty")
	}
	k.holder(field, t.Name, names, &t.Token, t.Rights, mayRead, mayWrite)
	if len(t.Prefixes) == 0 {
		k.wrong(field+".prefixes", `none are given; [""] allows all keys`)
	}
	if len(t.Kinds) == 0 {
		k.wrong(field+".kinds", `none are given; ["*"] allows all kinds`)
	}
	k.kinds(field+".kinds", t.Kinds)
	k.prefixes(field+".prefixes", t.Prefixes)
	if t.Quota != nil && !slices.Contains(t.Rights, mayWrite) && k.knows(field+".rights") {
		k.wrong(field+".quota", "it has no effect without the right %s", mayWrite)
	}
	k.quota(field+".quota", t.Quota)
}

// kinds checks the names of the kinds to which a token has a right.
func (k *checker) kinds(field string, names []string) {
	for i, name := range names {
		if _, is := k.config.Kinds[name]; !is && name != "*" && !k.form.has("kinds") {
			k.wrong(fmt.Sprintf("%s[%d]", field, i), "%q is none of the kinds", name)
		}
	}
}

// prefixes checks the prefixes of the keys to which a token has a right.
func (k *checker) prefixes(field string, prefixes []string) {
	for i, prefix := range prefixes {
		if len(prefix) > durable.MaxKey {
			k.wrong(fmt.Sprintf("%s[%d]", field, i), "it has %d bytes; a key has at most %d", len(prefix), durable.MaxKey)
		}
	}
}

// holder checks what the tokens of callers and of operators have in common.
func (k *checker) holder(field, name string, names map[string]bool, token *Secret, rights []string, allowed ...string) {
	if name != "" && names[name] {
		k.wrong(field+".name", "%q is used twice", name)
	}
	names[name] = true
	if k.secret(field+".token", token); !isHeaderText(string(*token)) || strings.TrimSpace(string(*token)) != string(*token) {
		k.wrong(field+".token", "a header cannot have it: it begins or ends with a space, or is not printable ASCII")
	}
	if len(rights) == 0 {
		k.wrong(field+".rights", "none are given; %s are allowed", strings.Join(allowed, ", "))
	}
	for i, right := range rights {
		if !slices.Contains(allowed, right) {
			k.wrong(fmt.Sprintf("%s.rights[%d]", field, i), "%q must be one of %s", right, strings.Join(allowed, ", "))
		}
	}
}

// A caller has rights for tasks.
type caller struct {
	name        string
	sum         [sha256.Size]byte // of the token
	prefixes    []string
	kinds       []string
	all         bool // kinds; kinds is then empty
	read, write bool

	batches chan struct{} // has a place for each batch that may be read at the same time
	quota   *Quota        // nil if it may add any number of tasks
	used    *usage        // of the quota
}

// newAnyone returns the caller of a service without tokens.
func newAnyone() *caller {
	return &caller{prefixes: []string{""}, all: true, read: true, write: true, batches: make(chan struct{}, mostBatches)}
}

// setTokens replaces the callers. A caller that stays has the same places for batches, and has used as much of its quota.
// Requests in progress keep their rights.
func (a *api) setTokens(tokens []*Token) {
	var before []*caller
	if is := a.callers.Load(); is != nil {
		before = *is
	}
	all := newCallers(tokens)
	for _, c := range all {
		if i := slices.IndexFunc(before, func(was *caller) bool { return was.name == c.name }); i >= 0 {
			c.batches, c.used = before[i].batches, before[i].used
		}
	}
	a.callers.Store(&all)
}

func newCallers(tokens []*Token) (all []*caller) {
	for _, t := range tokens {
		c := &caller{
			name: t.Name, sum: sha256.Sum256([]byte(t.Token)), prefixes: t.Prefixes, kinds: t.Kinds, batches: make(chan struct{}, mostBatches),
			read: slices.Contains(t.Rights, mayRead), write: slices.Contains(t.Rights, mayWrite), quota: t.Quota, used: new(usage),
		}
		if slices.Contains(t.Kinds, "*") {
			c.kinds, c.all = nil, true
		}
		all = append(all, c)
	}
	return all
}

// identify returns the caller of the request, or nil if its token is unknown. It takes the same time for all unknown
// tokens of the same length.
func (a *api) identify(r *http.Request) (found *caller) {
	callers := *a.callers.Load()
	if len(callers) == 0 {
		return a.anyone
	}
	token := bearer(r)
	if token == "" {
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

// bearer returns the token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

func (c *caller) hasKey(key string) bool {
	return slices.ContainsFunc(c.prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

func (c *caller) hasKind(kind string) bool { return c.all || slices.Contains(c.kinds, kind) }
