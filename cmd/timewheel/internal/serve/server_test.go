// SPDX-License-Identifier: MIT

package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A client that sends nothing, or slowly, does not make further runs start while the service stops.
func TestRun_drains_whileCallersAreSlow(t *testing.T) {
	for name, sent := range map[string]string{
		"nothing": "", "a part of a task": "PUT /tasks/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
			"Content-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, config(t, receiver(t, fail(t)), strings.Replace(simple, "{", `{"admin": {"listen": "127.0.0.1:0"}, `, 1)))
			c, err := net.Dial("tcp", r.srv.Addr().String())
			check(t, err)
			defer c.Close()
			_, err = c.Write([]byte(sent))
			check(t, err)
			r.must(204, "PUT", "/tasks/a", `{"kind": "k", "delay": "1h"}`) // the connection is accepted before this one
			stopped := make(chan error, 1)
			go func() { stopped <- r.stop() }()
			until(t, "the scheduler has stopped", func() bool { return errors.Is(r.srv.s.Reschedule(t.Context(), "a", time.Hour), durable.ErrStopped) })
			select {
			case <-stopped:
				t.Error("it has not waited for the client")
			default:
			}
			check(t, c.Close())
			check(t, <-stopped)
		})
	}
}

// At the end runs in progress are completed, and no other one starts.
func TestRun_drains(t *testing.T) {
	begun, end := make(chan bool, 10), make(chan bool)
	release := sync.OnceFunc(func() { close(end) })
	defer release()
	at := receiver(t, func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-end
	})
	cfg := config(t, at, strings.Replace(simple, "{", `{"admin": {"listen": "127.0.0.1:0"}, `, 1))
	cfg.Kinds["k"].Concurrency = 1
	dir := t.TempDir()
	r := startIn(t, cfg, dir)
	r.must(204, "PUT", "/tasks/first", `{"kind": "k"}`)
	<-begun
	r.must(204, "PUT", "/tasks/second", `{"kind": "k"}`)
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	admin := "http://" + r.srv.AdminAddr().String()
	until(t, "the service is not ready", func() bool { return status(t, admin+"/readyz") == http.StatusServiceUnavailable })
	until(t, "the scheduler is stopping", func() bool { return errors.Is(r.srv.s.Declare("other"), durable.ErrStopped) })
	if c, err := net.Dial("tcp", r.srv.Addr().String()); err == nil {
		c.Close()
		t.Error("callers are not refused")
	}
	select {
	case err := <-stopped:
		t.Fatalf("it ended with a run in progress: %v", err)
	default:
	}
	release()
	check(t, <-stopped)
	select {
	case <-begun:
		t.Error("another run has started")
	default:
	}
	r = startIn(t, cfg, dir)
	if _, is := r.info("first"); is {
		t.Error("the completed task is still there")
	}
	<-begun
	r.ends("second")
}

func status(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	check(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	check(t, err)
	return resp.StatusCode
}

// During the grace a load balancer sees that the service is not ready, and its requests are still answered and its tasks
// run. The end of the grace, a second signal and an interrupt start the drain.
func TestRun_untilTheEndOfTheGrace_answersCallers(t *testing.T) {
	at := receiver(t, func(http.ResponseWriter, *http.Request) {})
	of := func(grace time.Duration) *rig {
		cfg := config(t, at, strings.Replace(simple, "{", `{"admin": {"listen": "127.0.0.1:0"}, `, 1))
		*cfg.Grace = Duration(grace)
		return start(t, cfg)
	}
	ends := func(r *rig) {
		t.Helper()
		until(t, "callers are refused", func() bool {
			c, err := net.Dial("tcp", r.srv.Addr().String())
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		check(t, r.stop())
	}
	r := of(time.Hour)
	admin := "http://" + r.srv.AdminAddr().String()
	equal(t, "readiness before the signal", status(t, admin+"/readyz"), 200)
	r.term <- syscall.SIGTERM
	until(t, "it is not ready", func() bool { return status(t, admin+"/readyz") == 503 })
	equal(t, "health", status(t, admin+"/healthz"), 200)
	r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
	r.ends("a")
	r.term <- syscall.SIGTERM
	ends(r)
	r = of(time.Millisecond)
	r.term <- syscall.SIGTERM
	ends(r)
	r = of(time.Hour)
	r.term <- os.Interrupt
	ends(r)
}

// The socket of a process that was killed is replaced, and that of one that is running is not.
func TestListen_onAUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "serve") // the path of a socket must be short
	check(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	killed, err := net.Listen("unix", path)
	check(t, err)
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	check(t, killed.Close())
	cfg := config(t, "127.0.0.1:1", strings.Replace(simple, "127.0.0.1:0", "unix:"+path, 1))
	r := start(t, cfg)
	r.url = "http://localhost"
	was := http.DefaultClient.Transport
	http.DefaultClient.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer func() { http.DefaultClient.Transport = was }()
	r.must(204, "PUT", "/tasks/a", `{"kind": "k", "delay": "1h"}`)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	if _, err := Open(t.Context(), cfg, Place{Dir: t.TempDir()}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a second service has the socket as well")
	}
	r.must(200, "GET", "/tasks/a", "")
	check(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if _, err := listenUnix(filepath.Join(dir, "file")); err == nil {
		t.Error("a file was replaced")
	}
}

// The directory of the store has all payloads, so a warning says that others can open it.
func TestOpen_ofADirectoryThatOthersCanRead_warns(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its modes say nothing about other users")
	}
	for mode, warnings := range map[os.FileMode]int{0o700: 0, 0o750: 1, 0o701: 1} {
		dir := t.TempDir()
		check(t, os.Chmod(dir, mode))
		r := startIn(t, config(t, "127.0.0.1:1", simple), dir)
		equal(t, "the number of warnings for "+mode.String(), r.log.count("can open the directory of the store"), warnings)
	}
	r := startIn(t, config(t, "127.0.0.1:1", simple), filepath.Join(t.TempDir(), "new"))
	equal(t, "the number of warnings for a new one", r.log.count("can open the directory of the store"), 0)
}

// The receiver on node, which README.md shows, checks the signature, and does the work of a token once.
func TestReceiver_onNode_checksSignaturesAndTokens(t *testing.T) {
	process := nodeReceiver(t, "")
	at, next := process.address, process.next

	// The service calls it through a front that keeps the last request.
	front := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		status, text := replay(t, at, r.Header, string(body))
		if status != 200 {
			t.Errorf("a request of the service was answered with %d %s", status, text)
		}
		// The same request again, as an attacker sends it, and as a retry.
		if status, text := replay(t, at, r.Header, string(body)); status != 200 || text != "done before\n" {
			t.Errorf("a replayed request was answered with %d %s", status, text)
		}
		for name := range r.Header {
			if !strings.HasPrefix(name, "Timewheel-") {
				continue
			}
			forged := r.Header.Clone()
			forged.Set(name, "1"+forged.Get(name))
			if status, text := replay(t, at, forged, string(body)); status != 401 {
				t.Errorf("a request with a forged %s was answered with %d %s", name, status, text)
			}
			forged.Del(name)
			if status, text := replay(t, at, forged, string(body)); status != 401 {
				t.Errorf("a request without %s was answered with %d %s", name, status, text)
			}
		}
		if status, text := replay(t, at, r.Header, string(body)+" "); status != 401 {
			t.Errorf("a forged body was answered with %d %s", status, text)
		}
		old := r.Header.Clone()
		m := message{kind: old.Get(headerKind), key: old.Get(headerKey), token: old.Get(headerToken), attempt: old.Get(headerAttempt),
			fence: old.Get(headerFence), due: old.Get(headerDue), body: body}
		old.Set(headerSignature, m.sign([]Secret{secret}, time.Now().Add(-time.Hour)))
		if status, text := replay(t, at, old, string(body)); status != 401 || !strings.Contains(text, "too old") {
			t.Errorf("an old signature was answered with %d %s", status, text)
		}
		m.token = "1.1.other" // of another run, with a new and an old secret
		old.Set(headerToken, m.token)
		old.Set(headerSignature, m.sign([]Secret{"a new secret of it", secret}, time.Now()))
		if status, text := replay(t, at, old, string(body)); status != 200 || text != "done\n" {
			t.Errorf("a request with two signatures was answered with %d %s", status, text)
		}
	})
	r := start(t, config(t, front, simple))
	r.must(204, "PUT", "/tasks/"+"mail%2Fgr%C3%BC%C3%9Fe", `{"kind": "k", "payload": {"to":"ada"}}`)
	r.ends("mail/grüße")
	equal(t, "the work", next(), `work mail/grüße {"to":"ada"}`)
	equal(t, "the work of the other token", next(), `work mail/grüße {"to":"ada"}`)
	large := strings.Repeat("x", 3<<20)
	if resp, err := http.Post("http://"+at, "text/plain", strings.NewReader(large)); err == nil {
		t.Errorf("a large body was answered with %d", resp.StatusCode)
		resp.Body.Close()
	}
}

// Work that ends later is waited for: if it fails the run fails, and requests with the same token share it.
func TestReceiver_onNode_waitsForTheWork(t *testing.T) {
	at := nodeReceiver(t, `
import { receiver } from './receiver.mjs';
let calls = 0;
const server = receiver(process.env.SECRET, async () => {
  const call = ++calls;
  await new Promise((ready) => setTimeout(ready, 200));
  console.log('call ' + call);
  if (call === 1) throw new Error('the database is away');
});
server.listen(0, '127.0.0.1', () => console.log('listening ' + server.address().port));
`)
	front := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		statuses := make(chan int, 3)
		for range cap(statuses) {
			go func() {
				status, _ := replay(t, at.address, r.Header, string(body))
				statuses <- status
			}()
		}
		want := map[string]int{"1": 500, "2": 200}[r.Header.Get(headerAttempt)]
		for range cap(statuses) {
			if got := <-statuses; got != want {
				t.Errorf("attempt %s was answered with %d, want %d", r.Header.Get(headerAttempt), got, want)
			}
		}
		w.WriteHeader(want)
	})
	r := start(t, config(t, front, simple))
	r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
	r.ends("a")
	equal(t, "the work of the first attempt", at.next(), "call 1")
	equal(t, "the work of the second attempt", at.next(), "call 2")
}

// A nodeProcess is a receiver on node.
type nodeProcess struct {
	address string
	next    func() string // the next line of its output
}

// nodeReceiver starts receiver.mjs, or the script if it is not empty.
func nodeReceiver(t *testing.T, script string) nodeProcess {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	cmd := exec.Command(node, "receiver.mjs")
	if script != "" {
		cmd = exec.Command(node, "--input-type=module", "--eval", script)
	}
	cmd.Dir = filepath.Join("..", "..", "receiver")
	cmd.Env = append(os.Environ(), "SECRET="+secret, "PORT=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	next := func() string {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("it has ended: %v", lines.Err())
		}
		return lines.Text()
	}
	return nodeProcess{"127.0.0.1:" + strings.TrimPrefix(next(), "listening "), next}
}

func replay(t *testing.T, at string, h http.Header, body string) (int, string) {
	req, err := http.NewRequest("POST", "http://"+at+"/", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	for name, values := range h {
		if strings.HasPrefix(name, "Timewheel-") {
			req.Header[name] = values
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, fmt.Sprint(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}
