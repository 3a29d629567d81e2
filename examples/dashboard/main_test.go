// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/interrupts"
)

func TestMain(m *testing.M) { interrupts.Main(m, main) }

// Each button is pressed, and the page shows the effect. Then an interrupt ends the program with its report, although a
// page is open.
func TestMain_showsTrouble_untilItIsInterrupted(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-addr", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), interrupts.AsMain+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	check(t, err)
	address := strings.TrimSpace(strings.TrimPrefix(first, "the page"))
	for target, want := range map[string]string{
		"":                           "<title>timewheel</title>",
		"api/sources":                `"control":true`,
		"metrics":                    `timewheel_tasks_pending{wheel="orders"}`,
		"api/task?key=report-stock":  `"interval":40`,
		"api/wheel?wheel=sessions":   `"slots":600`,
		"api/scheduler":              `"scheduler":"payments"`,
		"api/events?wheel=something": `there is no wheel`,
	} {
		if text := get(t, address+target); !strings.Contains(text, want) {
			t.Errorf("%s is %.500s\nwithout %s", target, text, want)
		}
	}
	shown := map[string]string{
		"panic": "panicked in the last", "jam": "Overloaded for", "stop": "Stopped", "fail": "connection refused",
		"forget": "Kind sms.send has no handler", "pause": "Kind payment.capture is paused", "away": "The engine has not served this node",
		"pause one": `"state":"paused","next":null`, "resume one": `"next":"2`,
		"full": "The disk is full, and nothing has run",
	}
	for _, name := range []string{"panic", "miss", "jam", "free", "stop", "fail", "forget", "pause", "resume", "pause one",
		"resume one", "rush", "kill", "revive", "mend", "away", "full"} {
		response, err := http.PostForm(address+"trouble/", url.Values{"make": {name}})
		check(t, err)
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), "Jam all workers") {
			t.Errorf("the button %q is answered with %s, %v\n%s", name, response.Status, err, text)
		}
		text = nil
		for tries := 0; !strings.Contains(string(text), shown[name]); tries++ {
			if tries == 1200 { // some of them take a minute on a busy machine
				t.Fatalf("after the button %q the page never shows %q:\n%.5000s", name, shown[name], text)
			}
			time.Sleep(50 * time.Millisecond)
			text = []byte(get(t, address+"api/sources") + get(t, address+"api/task?scheduler=payments&key=report:02"))
		}
	}
	page, err := http.Get(address + "api/events")
	check(t, err)
	defer page.Body.Close()
	if cmd.Process.Signal(os.Interrupt) != nil {
		t.Skip("the system cannot send an interrupt") // Windows
	}
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil || strings.Count(string(rest), "runs started") != 5 {
		t.Errorf("the program ended with %v:\n%s", err, rest)
	}
}

func TestRun_for(t *testing.T) {
	if err := run(t.Context(), []string{"-for", "soon"}, io.Discard); err == nil {
		t.Error("-for soon is accepted")
	}
	check(t, run(t.Context(), []string{"-addr", "127.0.0.1:0", "-for", "1ms"}, io.Discard))
}

func TestPage_refuses(t *testing.T) {
	h := page([]button{{"jam", "Jam", func() error { return nil }}})
	for _, c := range []struct {
		method, name, from, host, site string
		want                           int
	}{
		{"GET", "", "127.0.0.1:5000", "localhost:8080", "", http.StatusOK},
		{"POST", "jam", "[::1]:5000", "[::1]:8080", "same-origin", http.StatusSeeOther},
		{"POST", "nothing", "127.0.0.1:5000", "localhost:8080", "", http.StatusBadRequest},
		{"POST", "jam", "127.0.0.1:5000", "localhost:8080", "cross-site", http.StatusForbidden},
		{"POST", "jam", "127.0.0.1:5000", "localhost.evil.test:8080", "", http.StatusForbidden},
		{"POST", "jam", "192.0.2.2:5000", "127.0.0.1:8080", "", http.StatusForbidden},
		{"GET", "", "192.0.2.2:5000", "localhost:8080", "", http.StatusForbidden},
	} {
		r := httptest.NewRequest(c.method, "/trouble/", strings.NewReader("make="+c.name))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", c.site)
		r.RemoteAddr, r.Host = c.from, c.host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%+v is answered with %d:\n%s", c, w.Code, w.Body)
		}
	}
}

func get(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get(address)
	check(t, err)
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return string(text)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
