// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	headerStandardID        = "Webhook-Id"
	headerStandardTimestamp = "Webhook-Timestamp"
	headerStandardSignature = "Webhook-Signature"
)

const (
	standardPrefix = "whsec_" // of a secret that is a key in base64
	leastKey       = 24       // bytes of such a key
	mostKey        = 64
)

// standardID returns the token as an identifier of Standard Webhooks, which has no dot.
func (m message) standardID() string { return strings.ReplaceAll(m.token, ".", "%2E") }

// standardSignature returns the signatures of Standard Webhooks: v1,BASE64 for each secret, separated by spaces.
func (m message) standardSignature(secrets []Secret, at time.Time) string {
	head := m.standardID() + "." + strconv.FormatInt(at.Unix(), 10) + "."
	all := make([]string, len(secrets))
	for i, secret := range secrets {
		mac := hmac.New(sha256.New, secret.standardKey())
		mac.Write([]byte(head))
		mac.Write(m.body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(all, " ")
}

// standardKey returns the key of a valid secret: the bytes after whsec_, or else its text.
func (s Secret) standardKey() []byte {
	if text, is := strings.CutPrefix(string(s), standardPrefix); is {
		key, _ := base64.StdEncoding.DecodeString(text)
		return key
	}
	return []byte(s)
}

// checkStandard returns an error if the secret begins with whsec_ and is no key of Standard Webhooks.
func (s Secret) checkStandard() error {
	text, is := strings.CutPrefix(string(s), standardPrefix)
	if !is {
		return nil
	}
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return errors.New("the part after whsec_ is not base64")
	}
	if len(key) < leastKey || len(key) > mostKey {
		return fmt.Errorf("it has %d bytes after whsec_; %d to %d are allowed", len(key), leastKey, mostKey)
	}
	return nil
}
