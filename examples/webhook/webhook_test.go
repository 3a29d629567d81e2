// SPDX-License-Identifier: MIT

// Package webhook tests the programs of this folder.
package webhook

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const secret = "a-secret-of-mails" // of the README, as the token

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start starts a command, and returns the lines that it writes. It is killed at the end of the test.
func start(t *testing.T, cmd *exec.Cmd) *bufio.Scanner {
	t.Helper()
	cmd.Env = append(os.Environ(), append(cmd.Env, "SHOP_TOKEN=a-token-of-the-shop", "MAIL_SECRET="+secret)...)
	out, err := cmd.StdoutPipe()
	check(t, err)
	cmd.Stderr = cmd.Stdout
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return bufio.NewScanner(out)
}

// Each program adds, removes and receives its tasks as the README says. Its webhook is called through a proxy, which
// first sends forged requests.
func TestPrograms(t *testing.T) {
	command := filepath.Join(t.TempDir(), "timewheel.exe")
	build := exec.Command("go", "build", "-o", command, "github.com/seed581295f1/timewheel/cmd/timewheel")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, program := range [][]string{{"python3", "webhook.py"}, {"node", "webhook.mjs"}} {
		t.Run(program[0], func(t *testing.T) {
			if _, err := exec.LookPath(program[0]); err != nil {
				t.Skipf("%s is not installed: %v", program[0], err)
			}
			runs(t, command, exec.Command(program[0], program[1]))
		})
	}
}

func runs(t *testing.T, command string, program *exec.Cmd) {
	address := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a part of it has no valid signature
		to := <-address               // of the program, once it is listening
		address <- to
		for name, forge := range forgeries {
			header, body := r.Header.Clone(), bytes.Clone(body)
			forge(header, body)
			if got := post(to, header, body); got != http.StatusUnauthorized {
				t.Errorf("%s is answered with %d", name, got)
			}
		}
		w.WriteHeader(post(to, r.Header, body))
	}))
	defer proxy.Close()
	text, err := os.ReadFile("serve.json")
	check(t, err)
	change := strings.NewReplacer("http://127.0.0.1:8480/", proxy.URL, "127.0.0.1:8470", "127.0.0.1:0")
	config := filepath.Join(t.TempDir(), "serve.json")
	check(t, os.WriteFile(config, []byte(change.Replace(string(text))), 0o600))
	service := exec.Command(command, "serve", "-config", config, "-dir", filepath.Join(t.TempDir(), "tasks"))
	url, log := "", start(t, service)
	for url == "" && log.Scan() {
		if _, at, found := strings.Cut(log.Text(), "listen="); found {
			url = "http://" + strings.Fields(at)[0]
		}
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for log.Scan() {
		}
	})
	program.Env = []string{"PORT=0", "SERVE_URL=" + url}
	lines := start(t, program)
	var printed []string
	for lines.Scan() {
		if port, found := strings.CutPrefix(lines.Text(), "listening on port "); found {
			address <- "http://127.0.0.1:" + port
			continue
		}
		printed = append(printed, lines.Text())
	}
	check(t, program.Wait())
	want := slices.Repeat([]string{"refused: the signature is wrong or old"}, len(forgeries))
	want = append(want, "add order:1: 201", "add order:2: 201", "remove order:2: 204", "order:1: mail to ada@example.com")
	slices.Sort(want) // a webhook may come before the last request is answered
	if slices.Sort(printed); !slices.Equal(printed, want) {
		t.Errorf("it prints:\n%s\nwant:\n%s", strings.Join(printed, "\n"), strings.Join(want, "\n"))
	}
	if service.Process.Signal(os.Interrupt) == nil { // Windows has no such signal
		reading.Wait()
		check(t, service.Wait())
	}
}

var forgeries = map[string]func(http.Header, []byte){
	"another payload": func(_ http.Header, body []byte) { body[0] = '[' },
	"another key":     func(h http.Header, _ []byte) { h.Set("Timewheel-Key", "order:2") },
	"no signature":    func(h http.Header, _ []byte) { h.Del("Timewheel-Signature") },
	"an old signature": func(h http.Header, body []byte) {
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintln(mac, 1700000000)
		for _, name := range []string{"Kind", "Key", "Token", "Attempt", "Fence", "Due"} {
			fmt.Fprintln(mac, h.Get("Timewheel-"+name))
		}
		mac.Write(body)
		h.Set("Timewheel-Signature", fmt.Sprintf("t=1700000000,v1=%x", mac.Sum(nil)))
	},
	"a wrong signature": func(h http.Header, _ []byte) {
		h.Set("Timewheel-Signature", strings.Replace(h.Get("Timewheel-Signature"), "v1=", "v1=00", 1))
	},
}

// post returns the status of the program's answer.
func post(url string, header http.Header, body []byte) int {
	req := httptest.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	req.RequestURI, req.Header = "", header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return http.StatusBadGateway
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
