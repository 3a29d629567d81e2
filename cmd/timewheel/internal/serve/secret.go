// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Secret is text that is not printed. In a file it may be "env:NAME" or "file:PATH" instead.
type Secret string

// String hides the secret.
func (Secret) String() string { return "(secret)" }

func (k *checker) path(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(k.config.dir, name)
}

// secret reads a secret, and checks its size.
func (k *checker) secret(field string, s *Secret) {
	if k.resolve(field, s) && len(*s) < leastSecret {
		k.wrong(field, "it has %d bytes; at least %d are needed", len(*s), leastSecret)
	}
}

// resolve reads a secret from the environment or from a file, and reports whether it succeeded.
func (k *checker) resolve(field string, s *Secret) bool {
	if name, is := strings.CutPrefix(string(*s), "env:"); is {
		if *s = Secret(k.getenv(name)); *s == "" {
			k.wrong(field, "the environment variable %s is empty", name)
			return false
		}
	} else if path, is := strings.CutPrefix(string(*s), "file:"); is {
		text, err := os.ReadFile(k.path(path))
		if err != nil {
			k.wrong(field, "%v", err)
			return false
		}
		*s = Secret(strings.TrimRight(string(text), "\r\n"))
	}
	return true
}

// distinct checks that a secret is not used where another must be.
func (k *checker) distinct() {
	used := make(map[Secret]string) // fields by value
	add := func(to map[Secret]string, field string, s Secret) {
		if other, is := to[s]; is && s != "" {
			k.wrong(field, "it is that of %s", other)
		}
		to[s] = field
	}
	for _, name := range slices.Sorted(maps.Keys(k.config.Kinds)) {
		own := make(map[Secret]string)
		if of := k.config.Kinds[name]; of != nil {
			for i, s := range of.Secrets {
				add(own, fmt.Sprintf("kinds.%s.secrets[%d]", name, i), s)
			}
		}
		maps.Copy(used, own) // several kinds may have one receiver
	}
	for i, t := range k.config.Tokens {
		if t != nil {
			add(used, fmt.Sprintf("tokens[%d].token", i), t.Token)
		}
	}
	if k.config.Admin == nil {
		return
	}
	for i, o := range k.config.Admin.Tokens {
		if o != nil {
			add(used, fmt.Sprintf("admin.tokens[%d].token", i), o.Token)
		}
	}
}
