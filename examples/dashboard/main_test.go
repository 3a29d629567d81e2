// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/examples/internal/interrupts"
)

func TestMain(m *testing.M) { interrupts.Main(m, main) }

func TestMain_interrupted_endsWithItsReport(t *testing.T) {
	interrupts.Test(t, "for Prometheus", "runs started", "-addr", "127.0.0.1:0")
}

func TestRun_servesThePageAndTheMetrics_untilItIsInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(context.Background())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-addr", "127.0.0.1:0"}, w)
		w.Close()
	}()
	out := make([]byte, 1000)
	n, err := r.Read(out) // the first line
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	words := strings.Fields(string(out[:n]))
	address := words[len(words)-1]
	for target, want := range map[string]string{
		"":                           "<title>timewheel</title>",
		"api/sources":                `"control":true`,
		"metrics":                    `timewheel_tasks_pending{wheel="orders"}`,
		"api/task?key=report-stock":  `"interval":40`,
		"api/wheel?wheel=sessions":   `"slots":600`,
		"api/scheduler":              `"scheduler":"payments"`,
		"api/events?wheel=something": `there is no wheel`,
	} {
		response, err := http.Get(address + target)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s is %v\n%.500s\nwithout %s", target, err, text, want)
		}
	}
	for _, what := range []string{"panic", "miss", "jam", "free", "stop", "fail", "forget", "pause", "resume", "pause one",
		"resume one", "rush", "kill", "revive", "mend", "away", "full"} {
		response, err := http.PostForm(address+"trouble/", url.Values{"make": {what}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), "Jam all workers") {
			t.Errorf("trouble of the kind %s is %d, %v\n%s", what, response.StatusCode, err, text)
		}
		want := map[string]string{
			"panic": "panicked in the last", "jam": "Overloaded for", "stop": "Stopped", "fail": "connection refused",
			"forget": "Kind sms.send has no handler", "pause": "Kind payment.capture is paused", "away": "The engine has not answered",
			"pause one": `"state":"paused","next":null`, "resume one": `"next":"2`, "full": "The disk is full, and nothing has run",
		}[what]
		begun := time.Now()
		for text := ""; !strings.Contains(text, want); time.Sleep(50 * time.Millisecond) {
			text = get(t, address+"api/sources") + get(t, address+"api/task?scheduler=payments&key="+oneTask)
			if time.Since(begun) > time.Minute {
				t.Fatalf("a minute after trouble of the kind %s it does not say %q:\n%s", what, want, text)
			}
		}
	}
	if response, err := http.PostForm(address+"trouble/", url.Values{"make": {"nothing"}}); err != nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("another trouble is %v, %v", response, err)
	}
	page, err := http.Get(address + "api/events") // stays open, and must not keep the program from ending
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

// get returns the body at the address.
func get(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRun_wrongArguments(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, args := range [][]string{{"-addr", taken.Addr().String()}, {"-for", "soon"}, {"-nothing"}} {
		if err := run(context.Background(), args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	var help bytes.Buffer
	if err := run(context.Background(), []string{"-h"}, &help); err != nil || !strings.Contains(help.String(), "-addr") {
		t.Errorf("-h: %v\n%s", err, &help)
	}
}

func TestRun_for_endsByItself(t *testing.T) {
	if err := run(context.Background(), []string{"-addr", "127.0.0.1:0", "-for", time.Millisecond.String()}, io.Discard); err != nil {
		t.Error(err)
	}
}
