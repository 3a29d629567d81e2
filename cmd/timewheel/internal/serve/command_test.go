// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const (
	commandLine = `{"args": ["ls"]}`
	bobs        = "the token of bob, of the tests"
)

// startCommands runs a service with a commander and these operators.
func startCommands(t *testing.T, tokens string, run Commander) *rig {
	t.Helper()
	r := startOn(t, newFile(t, operators(tokens, `, "operate": true`)).load(), Place{Dir: t.TempDir(), Commander: run})
	r.url = "http://" + r.srv.AdminAddr().String()
	return r
}

// says answers with the call.
func says(_ context.Context, _ *durable.Scheduler, c Call) int {
	fmt.Fprintf(c.Out, "%q of %s, %q, %q", c.Args, c.Who, c.Prefixes, c.Kinds)
	fmt.Fprint(c.Err, time.Unix(0, 0).In(c.Zone).Format("15:04 MST"), c.Width, c.Watched)
	c.Ask("really?")
	return 3
}

// The outputs come in their order, in base64, and then the exit code.
func TestCommand_isAnsweredInFrames(t *testing.T) {
	r := startCommands(t, "", says)
	got := r.do("POST", CommandPath, `{"args": ["ls", "-all"], "width": 80, "watched": true, "zone": "CET", "offset": 3600, "who": "eve"}`)
	want := `{"out":"WyJscyIgIi1hbGwiXSBvZiBldmUsIFtdLCBbXQ=="}` + "\n" + `{"err":"MDE6MDAgQ0VUODAgdHJ1ZQ=="}` + "\n" +
		`{"ask":"really?"}` + "\n" + `{"exit":3}` + "\n"
	if got.status != 200 || got.body != want || got.header.Get("Content-Type") != CommandType {
		t.Errorf("it is %+v", got)
	}
}

// Only operators with the right operate have commands. They have the name of their token, whatever they say.
func TestCommand_withTokens(t *testing.T) {
	calls := make(chan Call, 1)
	r := startCommands(t, operator("ann", anns, `"operate"`)+", "+operator("page", scrapers, `"page", "control", "metrics", "backup"`)+", "+
		strings.TrimSuffix(operator("bob", bobs, `"operate"`), "}")+`, "prefixes": ["a:"], "kinds": ["*"]}`,
		func(_ context.Context, _ *durable.Scheduler, c Call) int { calls <- c; return 0 })
	line := `{"args": ["ls"], "who": "eve"}`
	for token, want := range map[string]int{"": 401, "wrong": 401, scrapers: 403, anns: 200, bobs: 200} {
		r.must(want, "POST", CommandPath, line, "Authorization", "Bearer "+token)
		if want == 200 {
			c := <-calls
			equal(t, "the operator", c.Who, map[string]string{anns: "ann", bobs: "bob"}[token])
			equal(t, "limited to prefixes", slices.Equal(c.Prefixes, []string{"a:"}), token == bobs)
			equal(t, "limited to kinds", c.Kinds != nil, false)
		}
	}
	r.must(403, "POST", CommandPath, line, "Authorization", "Bearer "+anns, "Origin", "http://127.0.0.1")
	r.must(403, "POST", CommandPath, line, "Authorization", "Bearer "+anns, "Sec-Fetch-Site", "same-origin")
	r.must(403, "POST", CommandPath, line, "Authorization", "Bearer "+anns, "Host", "evil.example")
}

// Only well-formed requests of a bounded size are read, and the number of commands at once is bounded.
func TestCommand_isBounded(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	r := startCommands(t, "", func(context.Context, *durable.Scheduler, Call) int { begun <- true; <-end; return 0 })
	r.must(415, "POST", CommandPath, commandLine, "Content-Type", "text/plain")
	r.must(400, "POST", CommandPath, `{"args": "ls"}`)
	r.must(400, "POST", CommandPath, `{"argv": ["ls"]}`)
	r.must(413, "POST", CommandPath, `{"args": ["`+strings.Repeat("a", mostBody)+`"]}`)
	many := func(n int) string { return `{"args": ["show"` + strings.Repeat(`, "a"`, n-1) + `]}` }
	if got := r.must(400, "POST", CommandPath, many(mostArgs+1)); !strings.Contains(got, "args: has 1001 arguments; at most 1000 are allowed") {
		t.Errorf("too many arguments are answered with %s", got)
	}
	statuses := make(chan int)
	for range mostCommands {
		go func() { statuses <- r.do("POST", CommandPath, commandLine).status }()
		<-begun
	}
	if got := r.do("POST", CommandPath, commandLine); got.status != 503 || got.body != "8 commands are running; try again later\n" ||
		got.header.Get("Retry-After") == "" {
		t.Errorf("one more is answered with %+v", got)
	}
	for range mostCommands {
		end <- true
		equal(t, "the status", <-statuses, 200)
	}
	go func() { <-begun; end <- true }()
	r.must(200, "POST", CommandPath, many(mostArgs))
}

// One operator cannot take all places.
func TestCommand_leavesPlacesToOtherOperators(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	r := startCommands(t, operator("ann", anns, `"operate"`)+", "+operator("bob", bobs, `"operate"`),
		func(context.Context, *durable.Scheduler, Call) int { begun <- true; <-end; return 0 })
	statuses := make(chan int)
	send := func(token string) {
		statuses <- r.do("POST", CommandPath, commandLine, "Authorization", "Bearer "+token).status
	}
	for _, token := range []string{anns, bobs} {
		for range mostOfOne {
			go send(token)
			<-begun
		}
		want := map[string]string{anns: "4 commands of ann are running; try again later\n", bobs: "8 commands are running; try again later\n"}
		equal(t, "the answer to one more", r.must(503, "POST", CommandPath, commandLine, "Authorization", "Bearer "+token), want[token])
	}
	for range mostCommands {
		end <- true
		equal(t, "the status", <-statuses, 200)
	}
	go send(anns)
	<-begun
	end <- true
	equal(t, "the status", <-statuses, 200)
}

// A command ends when its client is gone, and when the service ends.
func TestCommand_endsWithItsClient_andWithTheService(t *testing.T) {
	begun, ended := make(chan bool), make(chan error)
	r := startCommands(t, "", func(ctx context.Context, _ *durable.Scheduler, _ Call) int {
		begun <- true
		<-ctx.Done()
		ended <- ctx.Err()
		return 1
	})
	send := func(ctx context.Context) {
		req, err := http.NewRequestWithContext(ctx, "POST", r.url+CommandPath, strings.NewReader(commandLine))
		check(t, err)
		req.Header.Set("Content-Type", "application/json")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	send(ctx)
	equal(t, "the end", <-ended, context.Canceled)
	gone := make(chan bool)
	go func() { send(context.Background()); close(gone) }()
	<-begun
	stopped := make(chan error)
	go func() { stopped <- r.stop() }()
	equal(t, "the end", <-ended, context.Canceled)
	check(t, <-stopped)
	<-gone
}

// Commands must be switched on.
func TestCommand_withoutOperate_isNotFound(t *testing.T) {
	r := startOn(t, newFile(t, operators("", "")).load(), Place{Dir: t.TempDir(), Commander: says})
	r.url = "http://" + r.srv.AdminAddr().String()
	r.must(404, "POST", CommandPath, commandLine)
}

func TestLoad_ofOperators(t *testing.T) {
	f := newFile(t, "")
	certify(t, f.dir)
	const files = `"tls": {"certificate": "cert.pem", "key": "key.pem"}`
	token := func(more string) string {
		return `"tokens": [{"name": "a", "token": "` + anns + `", ` + more + `}]`
	}
	for admin, says := range map[string]string{
		`"listen": "127.0.0.1:0", "operate": true`:                                                                        "",
		`"listen": ":0", "operate": true, ` + files + ", " + token(`"rights": ["operate"]`):                               "",
		`"listen": ":0", "operate": true, "insecure": true, ` + token(`"rights": ["operate"]`):                            "admin.operate: it is allowed only with tls and tokens",
		`"listen": ":0", "operate": true, "insecure": true, ` + files:                                                     "admin.operate: it is allowed only with tls and tokens",
		`"listen": "127.0.0.1:0", "operate": true, "metrics_only": true`:                                                  "admin.operate: metrics_only leaves it out",
		`"listen": "127.0.0.1:0", "operate": true, ` + token(`"rights": ["operate"], "prefixes": ["a:"], "kinds": ["k"]`): "",
		`"listen": "127.0.0.1:0", "operate": true, ` + token(`"rights": ["operate"], "prefixes": [""], "kinds": ["*"]`):   "",
		`"listen": "127.0.0.1:0", "operate": true, ` + token(`"rights": ["operate"], "prefixes": []`):                     "admin.tokens[0].prefixes: none are given",
		`"listen": "127.0.0.1:0", "operate": true, ` + token(`"rights": ["operate"], "kinds": []`):                        "admin.tokens[0].kinds: none are given",
		`"listen": "127.0.0.1:0", "operate": true, ` + token(`"rights": ["operate"], "kinds": ["none"]`):                  `admin.tokens[0].kinds[0]: "none" is none of the kinds`,
		`"listen": "127.0.0.1:0", "operate": true, ` + token(`"rights": ["operate", "page"], "prefixes": ["a:"]`):         "admin.tokens[0].rights[1]: page is for all tasks",
		`"listen": "127.0.0.1:0", ` + token(`"rights": ["operate"]`):                                                      `admin.tokens[0].rights[0]: "operate" has no effect without "operate": true`,
		`"listen": "127.0.0.1:0", "metrics_only": true, ` + token(`"rights": ["page"]`):                                   `admin.tokens[0].rights[0]: "page" has no effect`,
		`"listen": "127.0.0.1:0", ` + token(`"rights": ["backup"], "kinds": ["k"]`):                                       "admin.tokens[0].rights[0]: backup is for all tasks",
	} {
		f.write(`{"listen": "127.0.0.1:0", "admin": {` + admin + `}, "kinds": {"k": {` + https + `}}}`)
		if _, err := Load(f.path, func(string) string { return "" }); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", admin, err, says)
		}
	}
}
