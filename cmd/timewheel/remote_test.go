// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/cmd/timewheel/internal/serve"
	"github.com/seed581295f1/timewheel/durable"
)

var digits = regexp.MustCompile(`[0-9.]+`)

// On a database, a service answers as the command does without it, with the same exit codes.
func TestURL_ofAServiceOnADatabase_answersAsTheDatabase(t *testing.T) {
	direct := inDatabase(t)
	direct.restore(fixture(t))
	s := &serving{db: direct.place[1], schema: direct.place[3]}
	s.rig = rig{T: t, serves: s}
	s.write(`"listen": "127.0.0.1:0"`)
	s.start()
	for _, line := range []string{
		"ls", "ls -all -json", "ls -limit 3", "ls -prefix none:", "ls -after x", "ls -limit 0", "ls more", "ls -stat parked",
		"show", "show mail:1 none order:1", "show -json mail:1", "show -payload order:3", "show -payload a b",
		"stats", "stats -by group", "stats -kind mail", "failures", "failures -json", "history", "history -json none", "history -outcome parkd",
		"schedules", "schedules -json", "nodes -json", "tune", "tune -json", "tune -pool-size 0", "tune -kind k",
		"run-now none", "run-now order:5", "reschedule -in 1h", "unpark order:1", "unpark -state parked", "pause order:5", "resume order:1",
		"cancel order:1", "cancel -all -yes", "rm -prefix order:", "rm none", "rm -wait 1m none", "pause-kind", "pause-kind -all", "drain", "drain nobody", "undrain nobody",
		"resume-kind nothing", "pause-kind -json nothing", "resume-kind -json nothing", "rm -json -prefix none: -yes", "ls -h",
	} {
		for _, width := range []int{0, 80} {
			args := strings.Fields(line)
			direct.width, s.width = width, width
			want, got := direct.do(args[0], args[1:]...), s.do(args[0], args[1:]...)
			if slices.Contains([]string{"nodes", "stats", "pause-kind"}, args[0]) {
				want.out, got.out = digits.ReplaceAllString(want.out, "#"), digits.ReplaceAllString(got.out, "#")
			}
			if got != want {
				t.Errorf("%s: over -url it is\n%+v\nand without\n%+v", line, got, want)
			}
		}
	}
}

// The service does not run what would be about another place, or about its files.
func TestURL_ofACommandLineForAnotherPlace_isRefused(t *testing.T) {
	s := newServing(t)
	const place = "-url is the place, and no other can be given"
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"ls"}, done, "No task matches."},
		{[]string{"ls", "-dir", s.dir}, usage, place}, {[]string{"ls", "-db", "x"}, usage, place}, {[]string{"show", "-url", "x", "k"}, usage, place},
		{[]string{"ls", "-token-file", "/etc/passwd"}, usage, place}, {[]string{"ls", "-ca-file", "/etc/passwd"}, usage, place},
		{[]string{"nodes", "-schema", "x"}, usage, place}, {[]string{"ls", "-timeout", "1s"}, usage, place},
		{[]string{"serve", "-config", "x"}, usage, "serve does not work over -url"}, {[]string{"export"}, usage, "export does not work over -url"},
		{[]string{"import", "/etc/passwd"}, usage, "import does not"}, {[]string{"backup", "/tmp/x"}, usage, "backup does not"},
		{[]string{"migrate"}, usage, "migrate does not"}, {[]string{"completion", "sh"}, usage, "completion does not"},
		{[]string{"help"}, usage, "help does not"}, {[]string{"version"}, usage, "version does not"}, {[]string{"-h"}, done, ""}, {nil, usage, "usage: timewheel"},
		{[]string{"nothing"}, usage, "no command"},
	} {
		var out, errOut bytes.Buffer
		p := &program{out: &out, err: &errOut, now: time.Now, getenv: func(string) string { return annsToken }}
		p.remote.url = "http://" + s.admin
		_, err := p.sendLine(t.Context(), c.args)
		if code := codeOf(err); code != c.code || !strings.Contains(errOut.String(), c.says) {
			t.Errorf("%q: exit code %d, %v, and it writes %q; want %d with %q", c.args, code, err, errOut.String(), c.code, c.says)
		}
	}
	for _, flags := range [][]string{{"-dir", s.dir}, {"-db", "postgres://x"}} {
		if got := s.do("ls", flags...); got.code != usage || !strings.Contains(got.err, "-url, -db and -dir are places; give one") {
			t.Errorf("with %q: %+v", flags, got)
		}
	}
	if got := s.do("ls", "-timeout", "1s"); got.code != usage || !strings.Contains(got.err, place) {
		t.Errorf("with -timeout: %+v", got)
	}
	if got := s.do("show", "a\xff"); got.code != usage || !strings.Contains(got.err, "is not UTF-8") {
		t.Errorf("of a key in bytes: %+v", got)
	}
}

// The address of the service is a default, as that of a database is.
func TestURL_isADefault(t *testing.T) {
	s := newServing(t)
	s.env = map[string]string{"TIMEWHEEL_URL": s.place[1], "TIMEWHEEL_TOKEN": annsToken}
	if got := s.run("ls"); got.code != done || got.err != "No task matches.\n" {
		t.Errorf("%+v", got)
	}
	name := filepath.Join(t.TempDir(), "b.tar")
	if got := s.run("backup", name); got.code != done {
		t.Errorf("%+v", got)
	}
	dir := unpacked(t, name)
	if got := s.run("ls", "-dir", dir.place[1]); got.code != done {
		t.Errorf("with -dir: %+v", got)
	}
	s.env["TIMEWHEEL_DB"] = "postgres://x"
	if got := s.run("ls"); got.code != usage || !strings.Contains(got.err, "TIMEWHEEL_DB and TIMEWHEEL_URL are two places") {
		t.Errorf("with both: %+v", got)
	}
	s.must("ls")
}

// Who does not have the right learns no more than that.
func TestURL_withoutTheRight_isRefused(t *testing.T) {
	s := newServing(t, `{"name": "page", "token": "the token for the page", "rights": ["page", "control", "metrics"]}`)
	for token, says := range map[string]string{
		"a token that is none":   "timewheel: the service does not know the token; -token-file or TIMEWHEEL_TOKEN has it\n",
		"the token for the page": "timewheel: the service refuses the command: the token has no right to operate\n",
		"":                       "timewheel: the service does not know the token; -token-file or TIMEWHEEL_TOKEN has it\n",
	} {
		s.place[3] = s.token(token)
		if got := s.do("ls"); got != (result{"", says, failed}) {
			t.Errorf("with %q: %+v", token, got)
		}
	}
	s.place[3] = s.token(annsToken)
	s.must("ls")
	s.must("backup", filepath.Join(t.TempDir(), "b.tar"))
	s.place[3] = s.token("a token that is none")
	if got := s.do("backup", filepath.Join(t.TempDir(), "b.tar")); got.code != failed || !strings.Contains(got.err, "401") {
		t.Errorf("the backup: %+v", got)
	}
	s.place[3] = filepath.Join(t.TempDir(), "none")
	if got := s.do("ls"); got.code != failed || !strings.Contains(got.err, "none") {
		t.Errorf("without a file of the token: %+v", got)
	}
}

// An operator is known by the name of the token, in the log as well.
func TestURL_notesTheOperator(t *testing.T) {
	s := newServing(t, `{"name": "bob", "token": "`+bobsToken+`", "rights": ["operate"]}`)
	s.place[3] = s.token(bobsToken)
	if got := s.must("pause-kind", "-why", "the relay is down", "mine"); !strings.HasSuffix(got, `by bob: the relay is down.`+"\n") {
		t.Errorf("it writes %s", got)
	}
	s.must("ls", "-prefix", "unlogged")
	if want := `msg="command of an operator" operator=bob args="[pause-kind -why=the relay is down -- mine]"`; !s.log.has(want) || s.log.has("unlogged") {
		t.Errorf("the log is %s", &s.log.text)
	}
}

// Every answer but the whole one of a service is an error.
func TestURL_ofOtherServers(t *testing.T) {
	const cutOff = "the connection broke; the command may have taken effect"
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", serve.CommandType)
			_, _ = io.WriteString(w, text)
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    result
	}{
		"not found": {http.NotFound, result{"", "answers 404 Not Found: no timewheel serve with \"operate\": true", failed}},
		"a page":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, result{"", "answers 200 OK: no timewheel serve", failed}},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusSeeOther) }, result{"", "answers 303", failed}},
		"busy": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "8 commands are running", http.StatusServiceUnavailable)
		}, result{"", "refuses the command: 8 commands", failed}},
		"whole":        {answer(`{"out":"YQ=="}` + "\n" + `{"err":"Yg=="}` + "\n" + `{"exit":3}` + "\n"), result{"a", "b", notFound}},
		"no exit":      {answer(`{"out":"YQ=="}` + "\n"), result{"a", cutOff, failed}},
		"half a frame": {answer(`{"out":"YQ=="}` + "\n" + `{"ex`), result{"a", cutOff, failed}},
		"nothing":      {answer(""), result{"", cutOff, failed}},
		"a broken body": {func(w http.ResponseWriter, r *http.Request) {
			answer(`{"out":"YQ=="}`)(w, r)
			panic(http.ErrAbortHandler)
		}, result{"", cutOff, failed}},
		"no answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, result{"", cutOff, failed}},
	} {
		web := httptest.NewServer(c.handler)
		r := &rig{T: t, place: []string{"-url", web.URL}}
		if got := r.do("ls"); got.code != c.want.code || got.out != c.want.out || !strings.Contains(got.err, c.want.err) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		web.Close()
		if got := r.do("ls"); got.code != failed || !strings.Contains(got.err, "connection refused") || strings.Contains(got.err, cutOff) {
			t.Errorf("without a server: %+v", got)
		}
	}
}

// An interruption of the program cancels the command in the service.
func TestURL_interrupted_cancelsTheCommand(t *testing.T) {
	begun, ended := make(chan bool), make(chan bool)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", serve.CommandType)
		check(t, http.NewResponseController(w).Flush())
		begun <- true
		<-r.Context().Done()
		close(ended)
	}))
	defer web.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	var out, errOut bytes.Buffer
	p := &program{out: &out, err: &errOut, now: time.Now, getenv: func(string) string { return "" }}
	if code := p.run(ctx, []string{"rm", "-all", "-yes", "-url", web.URL}); code != failed || errOut.String() != "timewheel: interrupted\n" {
		t.Errorf("exit code %d, and it says %s", code, &errOut)
	}
	<-ended
}

// A token is sent only to a server that is checked, or on this machine.
func TestURL_withTLS(t *testing.T) {
	s := newServing(t)
	s.stop()
	dir := t.TempDir()
	certify(t, dir)
	s.write(fmt.Sprintf(`"listen": "127.0.0.1:0", "tls": {"certificate": %q, "key": %[2]q}`, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")))
	s.start()
	token, ca := s.place[3], filepath.Join(dir, "cert.pem")
	s.place = []string{"-url", "https://" + s.admin, "-token-file", token, "-ca-file", ca}
	if got := s.do("ls"); got.code != done || got.err != "No task matches.\n" {
		t.Errorf("%+v", got)
	}
	name := filepath.Join(t.TempDir(), "b.tar")
	s.must("backup", name)
	unpacked(t, name)
	for says, place := range map[string][]string{
		"certificate signed by unknown authority": {"-url", "https://" + s.admin, "-token-file", token},
		"Client sent an HTTP request to an HTTPS": {"-url", "http://" + s.admin, "-token-file", token},
		"a token is not sent to shop.example":     {"-url", "http://shop.example", "-token-file", token},
		"has no certificate in PEM":               {"-url", "https://" + s.admin, "-token-file", token, "-ca-file", token},
		"must be as https://HOST:PORT":            {"-url", "ftp://ann:secret@shop", "-token-file", token},
		"must be as https://":                     {"-url", "shop:80", "-token-file", token},
	} {
		s.place = place
		got := s.do("ls")
		if got.code == done || !strings.Contains(got.err, says) || strings.Contains(got.err, "secret") || strings.Contains(got.err, "may have taken effect") {
			t.Errorf("%q: %+v, want %q", place, got, says)
		}
	}
}

func TestURL_ofASocket(t *testing.T) {
	s := newServing(t)
	s.stop()
	socket := filepath.Join(t.TempDir(), "s")
	s.write(fmt.Sprintf(`"listen": "unix:%s"`, socket))
	s.start()
	s.place[1] = "unix:" + socket
	if got := s.do("ls"); got.code != done || got.err != "No task matches.\n" {
		t.Errorf("%+v", got)
	}
}

// An operator whose right is limited does not see an error that may be about another task.
func TestLimitedOperator_doesNotSeeErrorsOfTheStore(t *testing.T) {
	var log bytes.Buffer
	l := limited{log: slog.New(slog.NewTextHandler(&log, nil))}
	err := l.hide(fmt.Errorf("malformed record for key else:1: %w", durable.ErrCorrupt))
	if err == nil || strings.Contains(err.Error(), "else") || !strings.Contains(log.String(), "else:1") {
		t.Errorf("the error is %v, and the log %s", err, &log)
	}
	for _, is := range []error{nil, durable.ErrTaskKeyNotFound, context.Canceled, context.DeadlineExceeded} {
		if got := l.hide(is); got != is {
			t.Errorf("%v becomes %v", is, got)
		}
		if is != nil && l.hide(fmt.Errorf("else:1: %w", is)) != is {
			t.Errorf("%v keeps the text around it", is)
		}
	}
	if err := fmt.Errorf("%w: After x", durable.ErrInvalidTask); !errors.Is(l.hide(err), err) {
		t.Errorf("%v becomes %v", err, l.hide(err))
	}
}

// The configuration and the commands of README.md work.
func TestURL_ofTheREADME(t *testing.T) {
	text, err := os.ReadFile("README.md")
	check(t, err)
	_, section, _ := strings.Cut(string(text), "## Through a running serve")
	parts := regexp.MustCompile("(?s)```json\n\"admin\": {(.*?)\n}\n```.*?```sh\n(.*?)```").FindStringSubmatch(section)
	if parts == nil {
		t.Fatal("it has no example")
	}
	s := &serving{dir: filepath.Join(t.TempDir(), "tasks")}
	s.rig = rig{T: t, serves: s}
	s.write("")
	certify(t, filepath.Dir(s.config))
	t.Setenv("ANN_TOKEN", annsToken)
	t.Setenv("BOB_TOKEN", bobsToken)
	admin := strings.Replace(parts[1], "0.0.0.0:8471", "127.0.0.1:0", 1)
	check(t, os.WriteFile(s.config, []byte(`{"listen": "127.0.0.1:0", "kinds": {"mail": {"url": "https://hooks.example/", "secrets": ["a secret of the tests"]}},
		"admin": {`+admin+`}}`), 0o600))
	s.start()
	s.env = map[string]string{"TIMEWHEEL_URL": "https://" + s.admin, "TIMEWHEEL_TOKEN": annsToken}
	t.Chdir(t.TempDir())
	ran := 0
	for line := range strings.Lines(parts[2]) {
		if line, is := strings.CutPrefix(strings.TrimSpace(line), "timewheel "); is {
			args := strings.Fields(strings.ReplaceAll(line, `"smtp is down"`, "smtp"))
			if got := s.run(append(args, "-ca-file", filepath.Join(filepath.Dir(s.config), "cert.pem"))...); got.code != done {
				t.Errorf("%s: %+v", line, got)
			}
			ran++
		}
	}
	if ran != 3 {
		t.Errorf("there are %d commands", ran)
	}
}
