// SPDX-License-Identifier: MIT

package backup_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/backup"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

var errDisk = errors.New("the disk is full")

// A copied KV writes some bytes as its backup, and may then fail.
type copied struct {
	*memory.KV
	bytes int
	err   error
}

func (copied) Exclusive() {}

func (c copied) Backup(_ context.Context, w io.Writer) error {
	if c.bytes > 0 {
		if _, err := w.Write(make([]byte, c.bytes)); err != nil {
			return err
		}
	}
	return c.err
}

// serve returns the address of a server with the backup of an engine on the KV.
func serve(t *testing.T, of engine.KV, allow func(*http.Request) error) (string, *durable.Scheduler) {
	e, err := kv.New(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	s, err := durable.New(t.Context(), e, durable.WithLogger(testkit.Quiet()))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(backup.Handler(s, allow))
	t.Cleanup(func() {
		web.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return web.URL, s
}

func anyone(*http.Request) error { return nil }

func ask(t *testing.T, method, url string, header ...string) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

func TestHandler_backup_isTheAnswer(t *testing.T) {
	url, _ := serve(t, copied{memory.New(), 1 << 20, nil}, anyone)
	response, text, err := ask(t, http.MethodPost, url)
	if err != nil || response.StatusCode != http.StatusOK || len(text) != 1<<20 ||
		response.Header.Get("Content-Type") != "application/x-tar" {
		t.Errorf("%s, %d bytes, %v", response.Status, len(text), err)
	}
}

func TestHandler_whatIsNotAllowed_isRefused(t *testing.T) {
	whole := copied{memory.New(), 1 << 10, nil}
	never := func(*http.Request) error { return errors.New("you may not") }
	for name, c := range map[string]struct {
		allow  func(*http.Request) error
		method string
		header []string
		status int
		says   string
	}{
		"a GET":       {anyone, http.MethodGet, nil, http.StatusMethodNotAllowed, "must be POST"},
		"not allowed": {never, http.MethodPost, nil, http.StatusForbidden, "you may not"},
		"no rule":     {nil, http.MethodPost, nil, http.StatusForbidden, "not allowed here"},
		"another site": {anyone, http.MethodPost, []string{"Origin", "https://evil.example"},
			http.StatusForbidden, "browser"},
		"a name that is bound": {anyone, http.MethodPost, []string{"Sec-Fetch-Site", "same-origin"},
			http.StatusForbidden, "browser"},
	} {
		url, _ := serve(t, whole, c.allow)
		response, text, err := ask(t, c.method, url, c.header...)
		if err != nil || response.StatusCode != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s, %q, %v", name, response.Status, text, err)
		}
	}
}

func TestHandler_backupThatFails_isNoWholeAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		of     engine.KV
		status int
		says   string
	}{
		"no backup":  {memory.Exclusive(memory.New()), http.StatusNotImplemented, "cannot be copied while in use"},
		"at first":   {copied{memory.New(), 0, errDisk}, http.StatusInternalServerError, "the disk is full"},
		"in between": {copied{memory.New(), 1 << 16, errDisk}, http.StatusOK, ""},
	} {
		url, _ := serve(t, c.of, anyone)
		response, text, err := ask(t, http.MethodPost, url)
		if response.StatusCode != c.status || !strings.Contains(text, c.says) ||
			(c.status == http.StatusOK) != errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %s, %d bytes, %v", name, response.Status, len(text), err)
		}
	}
	url, s := serve(t, copied{memory.New(), 1 << 10, nil}, anyone)
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if response, _, _ := ask(t, http.MethodPost, url); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("after Shutdown: %s", response.Status)
	}
}
