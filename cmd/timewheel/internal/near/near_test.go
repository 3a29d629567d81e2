// SPDX-License-Identifier: MIT

package near

import "testing"

func TestTo(t *testing.T) {
	names := []string{"mail.send", "mail.seen", "order", "Größe", "a b\n"}
	for wrong, want := range map[string]string{
		"mail.send":   "mail.send",
		"mail.sned":   "mail.send",
		"mailsend":    "mail.send",
		"mail.sends!": "mail.send",
		"mail.snd!!":  "",
		"mail":        "",
		"odrer":       "order",
		"rd":          "", // most of its letters would change
		"Grösse":      "Größe",
		"a b":         "a b\n",
		"":            "",
	} {
		if got := To(wrong, names); got != want {
			t.Errorf("%q: %q, want %q", wrong, got, want)
		}
	}
}
