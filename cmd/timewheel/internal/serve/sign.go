// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// The headers of a webhook request.
const (
	headerKind      = "Timewheel-Kind"
	headerKey       = "Timewheel-Key"
	headerToken     = "Timewheel-Token"
	headerAttempt   = "Timewheel-Attempt"
	headerFence     = "Timewheel-Fence"
	headerDue       = "Timewheel-Due"
	headerSignature = "Timewheel-Signature"
)

// A message holds the signed headers and the body of a webhook request.
type message struct {
	kind, key, token, attempt, fence, due string

	body []byte
}

// sign returns the signature header: t=UNIX,v1=HEX with a v1 for each secret. The signed text is the time and the values
// of the headers, each followed by a line feed, and then the body.
func (m message) sign(secrets []Secret, at time.Time) string {
	unix := strconv.FormatInt(at.Unix(), 10)
	head := make([]byte, 0, 256)
	for _, line := range [...]string{unix, m.kind, m.key, m.token, m.attempt, m.fence, m.due} {
		head = append(append(head, line...), '\n')
	}
	var b strings.Builder
	b.WriteString("t=" + unix)
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(head)
		mac.Write(m.body)
		b.WriteString(",v1=" + hex.EncodeToString(mac.Sum(nil)))
	}
	return b.String()
}

// escape returns s as the value of a header: a percent sign and each byte that is not visible ASCII is percent-encoded.
func escape(s string) string {
	plain := func(c byte) bool { return c > ' ' && c <= '~' && c != '%' }
	n := 0
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}
