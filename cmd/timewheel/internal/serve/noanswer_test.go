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
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
)

// A caller reads why there was no answer, without the receiver's address. An operator reads the address, too.
func TestNoAnswer_whatCallersAndOperatorsRead(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	check(t, closed.Close())
	at := closed.Addr().String()
	cfg := config(t, at, `{"listen": "127.0.0.1:0", "kinds": {"k": {`+local+`, "history": {}}}}`)
	cfg.Kinds["k"].Retry.Attempts = 1
	r := start(t, cfg)
	r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
	until(t, "the task is parked", func() bool { info, _ := r.info("a"); return info.State == durable.Parked })
	info, _ := r.info("a")
	const want = "webhook: no answer: the receiver refuses connections"
	if !strings.HasPrefix(info.Failure, want+" (") || !strings.Contains(info.Failure, at) {
		t.Errorf("operators read %q", info.Failure)
	}
	until(t, "the attempt is in the history", func() bool { return strings.Contains(r.must(200, "GET", "/history", ""), "parked") })
	for _, path := range []string{"/tasks/a", "/tasks", "/history"} {
		if body := r.must(200, "GET", path, ""); strings.Count(body, `"`+want+`"`) == 0 || strings.Contains(body, "127.0.0.1") || strings.Contains(body, `"node"`) {
			t.Errorf("callers read %s: %s", path, body)
		}
	}
}

func TestNoAnswer_why(t *testing.T) {
	over, cancel := context.WithCancelCause(t.Context())
	cancel(durable.ErrCancelled)
	late, end := context.WithTimeout(t.Context(), -1)
	defer end()
	for want, of := range map[string]struct {
		ctx context.Context
		err error
	}{
		"the run was cancelled":                   {over, io.EOF},
		"the timeout is over":                     {late, io.EOF},
		"the receiver's name is not known":        {t.Context(), &net.DNSError{Name: "h", Server: "s", IsNotFound: true}},
		"the receiver's name cannot be looked up": {t.Context(), &net.DNSError{Name: "h", Server: "s", IsTimeout: true}},
		"the receiver's address is not allowed":   {t.Context(), fmt.Errorf("%w: h", errAddress)},
		"the receiver closed the connection":      {t.Context(), os.NewSyscallError("read", syscall.ECONNRESET)},
		"the receiver's certificate has expired, or is not valid yet": {t.Context(),
			&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired, Detail: "h"}}},
		"the receiver's certificate is for another name": {t.Context(),
			&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: new(x509.Certificate), Host: "h"}}},
		"the receiver's certificate is not signed by an authority that is known here": {t.Context(),
			&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}},
		"the receiver's certificate is not valid": {t.Context(), &tls.CertificateVerificationError{Err: errors.New("h")}},
		"the receiver refuses the TLS connection": {t.Context(), tls.AlertError(42)},
		"the receiver does not speak TLS":         {t.Context(), tls.RecordHeaderError{Msg: "h"}},
		"the receiver cannot be reached in time":  {t.Context(), os.ErrDeadlineExceeded},
		"the connection failed":                   {t.Context(), errors.New("h")},
	} {
		stored := unanswered(of.ctx, &url.Error{Op: "Post", URL: "https://h/secret", Err: of.err}).Error()
		if got := forCallers("timed out after 1s: " + stored); got != "timed out after 1s: webhook: no answer: "+want || strings.Contains(stored, "secret") {
			t.Errorf("of %v callers read %q, and operators %q", of.err, got, stored)
		}
	}
}
