// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
)

// A cursorSeal hides the position of a page from callers with a right to some kinds only: a page that ends because it takes too
// long ends at any task. Processes that were started with the same kinds, secrets and
// tokens have the same seal.
type cursorSeal struct{ cipher.AEAD }

func newCursorSeal(cfg *Config) cursorSeal {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(cfg.Kinds)) {
		sum.Write([]byte("\x00" + name))
		for _, secret := range cfg.Kinds[name].Secrets {
			sum.Write([]byte("\x01" + secret))
		}
	}
	for _, token := range cfg.Tokens {
		sum.Write([]byte("\x02" + token.Token))
	}
	block, err := aes.NewCipher(sum.Sum(nil))
	if err != nil {
		panic(err) // the key has the right size
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return cursorSeal{aead}
}

// next returns the cursor that the caller gets.
func (s cursorSeal) next(c *caller, cursor string) string {
	if cursor == "" || c.all {
		return cursor
	}
	return base64.RawURLEncoding.EncodeToString(s.Seal(nil, nil, []byte(cursor), nil))
}

// after returns the cursor that next has hidden. Any other text becomes one that is refused.
func (s cursorSeal) after(c *caller, text string) string {
	if text == "" || c.all {
		return text
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		b, err = s.Open(nil, nil, b, nil)
	}
	if err != nil {
		return "!"
	}
	return string(b)
}
