// SPDX-License-Identifier: MIT

package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// newWheel returns a running wheel with a recorder. It logs nothing.
func newWheel(t *testing.T, slots int) (*timewheel.TimeWheel, *Recorder) {
	t.Helper()
	rec := NewRecorder()
	tw, err := timewheel.New(10*time.Millisecond, slots, timewheel.WithLogger(testkit.Quiet()),
		rec.Option())
	if err != nil {
		t.Fatal(err)
	}
	tw.Start()
	t.Cleanup(tw.Stop)
	return tw, rec
}

// handlerOf returns the handler of one wheel. The recorder may be nil.
func handlerOf(tw *timewheel.TimeWheel, rec *Recorder, opts ...Option) http.Handler {
	return Handler([]Source{Wheel("wheel", tw, rec)}, opts...)
}

func add(t *testing.T, tw *timewheel.TimeWheel, key string, d time.Duration) {
	t.Helper()
	if err := tw.AddTask(&timewheel.Task{Key: key, Interval: d, Job: func(*timewheel.Task) {}}); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request to the handler. form is the body of a POST.
func ask(h http.Handler, method, target string, form url.Values, header ...string) *httptest.ResponseRecorder {
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequest(method, target, body)
	if !strings.HasPrefix(target, "http") {
		r.Host = "localhost:8080"
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// answer decodes a JSON answer, which must have the given status.
func answer[T any](t *testing.T, w *httptest.ResponseRecorder, status int) (v T) {
	t.Helper()
	if w.Code != status || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("status %d, %q, want %d and JSON: %s", w.Code, w.Header(), status, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return v
}

// A pipeServer serves over unbuffered connections, in a bubble: a write waits until it is read.
type pipeServer struct {
	conns chan net.Conn
	done  chan struct{}
}

func servePipes(t *testing.T, h http.Handler) *pipeServer {
	t.Helper()
	s := &pipeServer{conns: make(chan net.Conn), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	srv := &http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(s) }()
	t.Cleanup(func() {
		cancel()
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-served
	})
	return s
}

func (s *pipeServer) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *pipeServer) Close() error {
	close(s.done)
	return nil
}

func (s *pipeServer) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// get sends a request and returns the connection, on which the answer comes.
func (s *pipeServer) get(t *testing.T, target string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	s.conns <- theirs
	if _, err := io.WriteString(ours, "GET "+target+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return ours
}

// A stream is the stream of events that a page reads.
type stream struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func (s *pipeServer) listen(t *testing.T, target string) *stream {
	t.Helper()
	return readStream(t, s.get(t, target))
}

func readStream(t *testing.T, conn net.Conn) *stream {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the answer is %s with %v", response.Status, response.Header)
	}
	return &stream{t: t, conn: conn, r: bufio.NewReader(response.Body)}
}

// next returns the next event.
func (s *stream) next() (v stateJSON) {
	s.t.Helper()
	line, err := s.r.ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	text, ok := strings.CutPrefix(line, "data: ")
	if end, err := s.r.ReadString('\n'); !ok || end != "\n" || err != nil {
		s.t.Fatalf("%q and %q, %v, are no event", line, end, err)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// close closes the page, and returns when the handler has seen it.
func (s *stream) close() {
	s.conn.Close()
	synctest.Wait()
}
