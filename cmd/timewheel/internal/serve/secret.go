// SPDX-License-Identifier: MIT

package serve

import (
	"os"
	"path/filepath"
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
