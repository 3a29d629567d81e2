// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// The request says all about the run, and each secret signs it.
func TestWebhook_request_isSigned(t *testing.T) {
	type request struct {
		header http.Header
		body   string
	}
	got := make(chan request, 10)
	at := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header, string(body)}
		if len(got) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	r := start(t, config(t, at, `{"listen": "127.0.0.1:0", "kinds": {"größe": {"url": "http://$R/hook", "secrets": ["$S", "another secret of it"],
		"networks": ["127.0.0.1/32"], "headers": {"Authorization": "Basic 1"}, "retry": {"least": "1ms", "most": "1ms"}}}}`))
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r.must(204, "PUT", "/tasks/"+"a%2F%25%0A%C3%BC", `{"kind": "größe", "payload": {"a":  1.5}}`,
		"traceparent", parent, "tracestate", "v=1")
	r.ends("a/%\nü")
	first, second := <-got, <-got
	var fences [2]int64
	for i, one := range []request{first, second} {
		h := one.header
		for name, want := range map[string]string{
			"Timewheel-Kind": "gr%C3%B6%C3%9Fe", "Timewheel-Key": "a/%25%0A%C3%BC", "Timewheel-Attempt": fmt.Sprint(i + 1),
			"Content-Type": "application/json", "Authorization": "Basic 1",
			"Traceparent": parent, "Tracestate": "v=1", "User-Agent": "timewheel", "Timewheel-Token": first.header.Get("Timewheel-Token"),
		} {
			equal(t, name, h.Get(name), want)
		}
		equal(t, "the body", one.body, `{"a":  1.5}`)
		var err error
		fences[i], err = strconv.ParseInt(h.Get("Timewheel-Fence"), 10, 64)
		check(t, err)
		if token := h.Get("Timewheel-Token"); !regexp.MustCompile(`^[0-9a-f]+\.\d+\.a/%25%0A%C3%BC$`).MatchString(token) {
			t.Errorf("the token is %s", token)
		}
		if due, err := time.Parse(time.RFC3339, h.Get("Timewheel-Due")); err != nil || time.Since(due).Abs() > time.Hour {
			t.Errorf("due is %v, %v", due, err)
		}
		parts := strings.Split(h.Get("Timewheel-Signature"), ",")
		if len(parts) != 3 {
			t.Fatalf("the signature is %q", parts)
		}
		text := strings.TrimPrefix(parts[0], "t=") + "\n"
		for _, name := range []string{"Kind", "Key", "Token", "Attempt", "Fence", "Due"} {
			text += h.Get("Timewheel-"+name) + "\n"
		}
		for i, key := range []string{secret, "another secret of it"} {
			mac := hmac.New(sha256.New, []byte(key))
			mac.Write([]byte(text + one.body))
			equal(t, "a signature", parts[i+1], "v1="+hex.EncodeToString(mac.Sum(nil)))
		}
	}
	if fences[0] <= 0 || fences[1] <= fences[0] {
		t.Errorf("the fences are %d", fences)
	}
}

// The status of the answer decides what happens to the task.
func TestWebhook_statuses_decide(t *testing.T) {
	for _, c := range []struct {
		status int
		after  string
		want   string // done, parked, later or again
	}{
		{200, "", "done"}, {204, "", "done"}, {299, "", "done"},
		{410, "", "parked"}, {410, "3600", "parked"},
		{429, "3600", "later"}, {503, "3600", "later"}, {503, "Fri, 31 Dec 2100 23:59:59 GMT", "later"},
		{503, "99999999999999999999", "later"},
		{429, "", "again"}, {503, "soon", "again"}, {429, "0", "again"}, {503, "Fri, 31 Dec 1999 23:59:59 GMT", "again"}, {500, "3600", "again"}, {400, "", "again"}, {404, "", "again"},
		{302, "", "again"}, {304, "", "again"},
	} {
		t.Run(fmt.Sprint(c.status, c.after), func(t *testing.T) {
			var calls atomic.Int32
			at := receiver(t, func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) > 1 {
					return // 200
				}
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				w.WriteHeader(c.status)
				if c.status >= 400 {
					fmt.Fprint(w, "the reason\n\x00\xff")
				}
			})
			r := start(t, config(t, at, simple))
			r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
			switch c.want {
			case "done", "again":
				r.ends("a")
				want := int32(1)
				if c.want == "again" {
					want = 2
				}
				equal(t, "the number of calls", calls.Load(), want)
			default:
				var info durable.Info
				until(t, "an attempt has failed", func() bool { info, _ = r.info("a"); return info.Attempts > 0 })
				if parked := c.want == "parked"; (info.State == durable.Parked) != parked || !parked && time.Until(info.Next) < 50*time.Minute ||
					!parked && time.Until(info.Next) > 25*time.Hour {
					t.Errorf("it is %v", info)
				}
				equal(t, "the number of calls", calls.Load(), 1)
				equal(t, "the failure", info.Failure,
					fmt.Sprintf("webhook: answer %d %s: the reason", c.status, http.StatusText(c.status)))
			}
		})
	}
}

// A receiver that hangs fails the attempt after the timeout, and does not delay other kinds, however many tasks wait for
// it.
func TestWebhook_toAReceiverThatHangs_isBounded(t *testing.T) {
	hang := make(chan bool)
	defer close(hang)
	begun := make(chan bool, 100)
	stuck := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		begun <- true
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	good := receiver(t, func(http.ResponseWriter, *http.Request) {})
	cfg := config(t, stuck, `{"listen": "127.0.0.1:0", "drain": "1ms", "kinds": {
		"brief": {`+local+`, "timeout": "50ms"},
		"long": {`+local+`, "timeout": "1h", "concurrency": 2},
		"good": {`+strings.ReplaceAll(local, "$R", good)+`, "concurrency": 1}}}`)
	cfg.Kinds["brief"].Retry.Attempts = mostFailures - 1
	r := start(t, cfg)
	for i := range 20 {
		r.must(204, "PUT", "/tasks/"+keyOf("long", i), `{"kind": "long"}`)
	}
	<-begun
	<-begun
	r.must(204, "PUT", "/tasks/brief", `{"kind": "brief"}`)
	r.must(204, "PUT", "/tasks/good", `{"kind": "good"}`)
	r.ends("good")
	until(t, "the brief task is parked", func() bool { info, _ := r.info("brief"); return info.State == durable.Parked })
	if info, _ := r.info("brief"); !strings.Contains(info.Failure, "webhook: no answer: ") {
		t.Errorf("the failure is %q", info.Failure)
	}
	if info := r.srv.s.Kinds(); info[2].Running != 2 { // brief, good, long
		t.Errorf("the kinds are %+v", info)
	}
	if err := r.stop(); err == nil { // the drain is over while they hang
		t.Error("Run returns no error with runs in progress")
	}
	r.stop = func() error { return nil }
}

// A receiver that sends its answer byte by byte is bounded by the timeout, and one that sends too much by a size.
func TestWebhook_toASlowOrLongReceiver_isBounded(t *testing.T) {
	drip := func(head string, each string) func(net.Conn) {
		return func(c net.Conn) {
			_, err := io.WriteString(c, head)
			for tick := time.NewTicker(time.Millisecond); err == nil; <-tick.C {
				_, err = io.WriteString(c, each)
			}
		}
	}
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, c := range []struct {
		name, timeout string
		answer        func(net.Conn)
		failure       string // empty: the run is complete
	}{
		{"headers byte by byte", "100ms", drip(ok+"X: ", "x"), "no answer"},
		{"body byte by byte", "100ms", drip(ok+"Content-Length: 1000000\r\n\r\n", "x"), ""},
		{"headers without end", "1h", drip(ok, "X: "+strings.Repeat("x", 10_000)+"\r\n"), "no answer"},
		{"body without end", "1h", drip(ok+"Content-Length: 1000000000\r\n\r\n", strings.Repeat("x", 10_000)), ""},
		{"interim answers without end", "1h", drip("", "HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", 1000)+"\r\n\r\n"), "no answer"},
		{"no HTTP", "1h", drip("hello\r\n\r\n", "hello"), "no answer"},
		{"nothing", "1h", func(net.Conn) {}, "no answer"},
		{"another protocol", "1h", func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}, "answer 101 Switching Protocols"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, config(t, rawReceiver(t, c.answer), `{"listen": "127.0.0.1:0", "kinds": {"k": {"url": "http://$R/?password=1",
				"networks": ["127.0.0.1/32"], "secrets": ["$S"], "retry": {"attempts": 1}, "timeout": "`+c.timeout+`"}}}`))
			r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
			if c.failure == "" {
				r.ends("a")
				equal(t, "the number of failed attempts", r.srv.s.Stats().Failed, 0)
				return
			}
			until(t, "the task is parked", func() bool { info, _ := r.info("a"); return info.State == durable.Parked })
			if info, _ := r.info("a"); !strings.Contains(info.Failure, c.failure) || strings.Contains(info.Failure, "password") {
				t.Errorf("the failure is %q", info.Failure)
			}
		})
	}
}

// An attempt is delivered once, even if the receiver reads the request and closes the connection, and however many other
// connections to it are idle.
func TestWebhook_attempt_isDeliveredOnce(t *testing.T) {
	const idle = 20
	for i, payload := range []string{``, `, "payload": {"a": 1}`, ``, ``, ``} {
		method := []string{"POST", "POST", "PUT", "PATCH", "DELETE"}[i]
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprint(method, " reset ", reset, payload), func(t *testing.T) {
				var together sync.WaitGroup
				together.Add(idle)
				var mu sync.Mutex
				var attempts []string
				at := receiver(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Timewheel-Key") != "poison" {
						together.Done()
						together.Wait()
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					mu.Lock()
					attempts = append(attempts, r.Header.Get("Timewheel-Attempt"))
					mu.Unlock()
					conn, _, err := w.(http.Hijacker).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					if reset {
						_ = conn.(*net.TCPConn).SetLinger(0)
					}
					_ = conn.Close()
				})
				cfg := config(t, at, strings.Replace(simple, `"attempts": 20`, `"attempts": 2`, 1))
				cfg.Kinds["k"].Method = method
				r := start(t, cfg)
				for i := range idle {
					r.must(204, "PUT", "/tasks/"+keyOf("a", i), `{"kind": "k"}`)
				}
				until(t, "the connections are idle", func() bool { return r.srv.s.Len() == 0 })
				r.must(204, "PUT", "/tasks/poison", `{"kind": "k"`+payload+`}`)
				until(t, "the task is parked", func() bool { info, _ := r.info("poison"); return info.State == durable.Parked })
				mu.Lock()
				defer mu.Unlock()
				equal(t, "the delivered attempts", strings.Join(attempts, " "), "1 2")
			})
		}
	}
}

// An idle connection is closed before a receiver closes it, because an attempt fails if it meets one that is being closed.
func TestWebhook_idleConnection_isClosedSoon(t *testing.T) {
	closed := make(chan bool, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- true
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	r := start(t, config(t, s.Listener.Addr().String(), simple))
	r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
	r.ends("a")
	select {
	case <-closed:
	case <-time.After(bound):
		t.Errorf("it is still open after %v", bound)
	}
}

// A redirect is not followed, so none leads to a private address.
func TestWebhook_redirectToAPrivateAddress_isNotFollowed(t *testing.T) {
	private := receiver(t, fail(t))
	for _, code := range []int{301, 302, 303, 307, 308} {
		at := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+private+"/", code)
		})
		r := start(t, config(t, at, strings.Replace(simple, `"attempts": 20`, `"attempts": 1`, 1)))
		r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
		until(t, "the task is parked", func() bool { info, _ := r.info("a"); return info.State == durable.Parked })
		if info, _ := r.info("a"); !strings.Contains(info.Failure, "redirects are not followed") {
			t.Errorf("the failure is %q", info.Failure)
		}
	}
}

// The parts of the signed text cannot be shifted: a key with a dot and a body share no signature with another pair.
func TestSign_ofShiftedParts_differs(t *testing.T) {
	at := time.Unix(1, 0)
	a := message{kind: "k", key: "a", token: "1.0.a", attempt: "1", fence: "0", due: "d", body: []byte("b.c")}
	b := a
	b.token, b.body = "1.0.a.b", []byte("c")
	one, other := a.sign([]Secret{secret}, at), b.sign([]Secret{secret}, at)
	if one == other {
		t.Errorf("both are %s", one)
	}
	fields := []*string{&b.kind, &b.key, &b.token, &b.attempt, &b.fence, &b.due}
	for _, field := range fields {
		b = a
		*field += "x"
		if b.sign([]Secret{secret}, at) == one {
			t.Errorf("a field is not signed: %+v", b)
		}
	}
}

func TestEscape_keepsVisibleASCII(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "order:1/2~!": "order:1/2~!", "100%": "100%25", " a b ": "%20a%20b%20", "ü\x00\x7f\xff\r\n": "%C3%BC%00%7F%FF%0D%0A",
	} {
		equal(t, s, escape(s), want)
	}
}

func TestTrace_thatIsNotValid_isLeftOut(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for trace, want := range map[string][2]string{
		"": {}, parent: {parent, ""}, parent + " a=1,b=2": {parent, "a=1,b=2"}, parent + " a\n": {parent, ""}, parent + "x": {},
		"ff" + parent[2:]: {}, strings.Replace(parent, "b7ad6b7169203331", "0000000000000000", 1): {}, "X: 1": {},
	} {
		got, state := splitTrace(trace)
		equal(t, trace, [2]string{got, state}, want)
	}
	h := http.Header{"Traceparent": {parent}, "Tracestate": {strings.Repeat("x", durable.MaxTrace)}}
	equal(t, "a trace with a long state", joinTrace(h), parent)
}

// The signature is that of HTTP.md, which a receiver in any language can compute.
func TestSign_isThatOfTheDocument(t *testing.T) {
	m := message{kind: "mail", key: "order:42", token: "17979cfe362a0000.0.order:42", attempt: "1", fence: "7",
		due: "2023-11-14T22:13:20Z", body: []byte(`{"to":"ann"}`)}
	got := m.sign([]Secret{"0123456789abcdef"}, time.Unix(1_700_000_000, 0))
	readme, err := os.ReadFile("../../HTTP.md")
	if err != nil {
		t.Fatal(err)
	}
	hex, ok := strings.CutPrefix(got, "t=1700000000,v1=")
	if !ok || !strings.Contains(string(readme), "`"+hex+"`") {
		t.Errorf("the signature is %s, and not in HTTP.md", got)
	}
}
