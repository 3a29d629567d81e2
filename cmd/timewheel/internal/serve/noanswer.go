// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
)

// noAnswer begins the failure of a request without an answer. After it comes why, in words for callers; and then, in
// parentheses, the error for operators, which may name hosts and addresses.
const noAnswer = "webhook: no answer: "

// unanswered returns the error for a request without an answer. It omits the URL, which may contain secrets.
func unanswered(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf(noAnswer+"the timeout is over (%w)", cause)
	case cause != nil:
		return fmt.Errorf(noAnswer+"%w", cause)
	}
	var with *url.Error
	if errors.As(err, &with) {
		err = with.Err
	}
	return fmt.Errorf(noAnswer+"%s (%w)", whyNoAnswer(err), err)
}

// whyNoAnswer returns why there is no answer, without a parenthesis.
func whyNoAnswer(err error) string {
	var (
		name      *net.DNSError
		timeout   interface{ Timeout() bool }
		invalid   x509.CertificateInvalidError
		unknown   x509.UnknownAuthorityError
		otherName x509.HostnameError
		unproven  *tls.CertificateVerificationError
		alert     tls.AlertError
		noTLS     tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return "the receiver's name is not known"
	case errors.As(err, &name):
		return "the receiver's name cannot be looked up"
	case errors.Is(err, errAddress):
		return "the receiver's address is not allowed"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the receiver refuses connections"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the receiver closed the connection"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the receiver's certificate has expired, or is not valid yet"
	case errors.As(err, &otherName):
		return "the receiver's certificate is for another name"
	case errors.As(err, &unknown):
		return "the receiver's certificate is not signed by an authority that is known here"
	case errors.As(err, &unproven):
		return "the receiver's certificate is not valid"
	case errors.As(err, &alert):
		return "the receiver refuses the TLS connection"
	case errors.As(err, &noTLS):
		return "the receiver does not speak TLS"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the receiver cannot be reached in time"
	}
	return "the connection failed"
}

// forCallers returns a failure without its part for operators.
func forCallers(failure string) string {
	before, why, _ := strings.Cut(failure, noAnswer)
	if why == "" {
		return failure
	}
	why, _, _ = strings.Cut(strings.TrimPrefix(why, "durable: "), " (")
	return before + noAnswer + why
}
