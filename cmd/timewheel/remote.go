// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/cmd/timewheel/internal/serve"
	"github.com/seed581295f1/timewheel/durable"
)

// A remote is a running `timewheel serve`, as given by the flags.
type remote struct{ url, tokenFile, caFile string }

func (s *remote) define(f *flag.FlagSet, usage string) {
	f.StringVar(&s.url, "url", "", usage)
	f.StringVar(&s.tokenFile, "token-file", "", "the `FILE` with the token for -url; the default is $TIMEWHEEL_TOKEN")
	f.StringVar(&s.caFile, "ca-file", "", "the `FILE` of a CA in PEM to check -url with; by default the system's")
}

// remoteFlags are the flags that define defines.
var remoteFlags = []string{"url", "token-file", "ca-file"}

// choose reports whether the place is a service. It completes the service from the environment.
func (s *remote) choose(p *program, f *flag.FlagSet) (is bool, err error) {
	stored := false
	f.Visit(func(one *flag.Flag) { stored = stored || one.Name == "db" || one.Name == "dir" })
	switch {
	case stored && s.url != "":
		return false, usagef("-url, -db and -dir are places; give one")
	case stored:
		return false, nil
	case s.url == "":
		s.url = p.getenv("TIMEWHEEL_URL")
		if s.url != "" && p.getenv("TIMEWHEEL_DB") != "" {
			return false, usagef("TIMEWHEEL_DB and TIMEWHEEL_URL are two places; give -db or -url")
		}
	}
	return s.url != "", nil
}

// post sends a request to the service, at the path of its URL or at the default one. It does not follow redirects, which
// would make it a GET, and would show the token to another server.
func (s *remote) post(ctx context.Context, p *program, path string, body []byte, header http.Header) (*http.Response, error) {
	token := p.getenv("TIMEWHEEL_TOKEN")
	if s.tokenFile != "" {
		text, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return nil, err
		}
		token = strings.TrimSpace(string(text))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // there is one request
	address := s.url
	if socket, is := strings.CutPrefix(s.url, "unix:"); is {
		address = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
		transport.Proxy = nil
	}
	to, err := url.Parse(address)
	switch {
	case err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https":
		return nil, usagef("-url must be as https://HOST:PORT or unix:PATH") // its text may have a password
	case token != "" && to.Scheme == "http" && !isLoopback(to.Hostname()):
		return nil, usagef("a token is not sent to %s without TLS: give a URL with https", to.Host)
	case strings.Trim(to.Path, "/") == "":
		to.Path = path
	}
	if s.caFile != "" {
		text, err := os.ReadFile(s.caFile)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", s.caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	maps.Copy(request.Header, header)
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client.Do(request)
}

func isLoopback(host string) bool {
	return strings.HasSuffix(host, ".localhost") || serve.IsLoopback(host)
}

// An ended is the exit code of a command that a service has run. The service has explained it.
type ended int

func (e ended) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

var errCut = errors.New("the connection broke; the command may have taken effect")

// isRemote reports whether the command works through a service.
func (c *command) isRemote() bool { return c.group == look || c.group == change }

// send asks the service to run the command with these arguments, and writes its outputs. If the service has a question, it
// asks the user, and sends the command again if the answer is yes.
func (c *command) send(ctx context.Context, p *program, args []string) error {
	args, err := c.sent(p, args)
	if err != nil {
		return err
	}
	question, err := p.sendLine(ctx, append([]string{c.name}, args...))
	if question == "" {
		return err
	}
	if err := p.confirm(ctx, question); err != nil {
		return err
	}
	_, err = p.sendLine(ctx, append([]string{c.name, "-yes"}, args...))
	return err
}

// sendLine asks the service to run a command line. It returns the question of the service, if it has one.
func (p *program) sendLine(ctx context.Context, line []string) (question string, err error) {
	now := p.now()
	zone, offset := now.Zone()
	body, err := json.Marshal(serve.CommandLine{
		Args: line, Width: p.width, Watched: p.watched, Zone: zone, Offset: offset, Who: p.who,
	})
	if err != nil {
		return "", err
	}
	sent := false
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent = true }})
	response, err := p.remote.post(traced, p, serve.CommandPath, body, http.Header{"Content-Type": {"application/json"}})
	switch {
	case err != nil && sent:
		return "", cmp.Or(ctx.Err(), fmt.Errorf("%w: %w", errCut, err))
	case err != nil:
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || kind != serve.CommandType {
		return "", refusal(response)
	}
	return p.receive(ctx, response.Body)
}

// sent returns the arguments that the service gets: the flags except remoteFlags, and then the others.
func (c *command) sent(p *program, args []string) (sent []string, err error) {
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	again := *p
	c.define(&again, f)
	f.VisitAll(func(one *flag.Flag) {
		if !slices.Contains(remoteFlags, one.Name) {
			one.Value = recorded{one.Value, one.Name, &sent}
		}
	})
	rest, err := parse(f, args)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		sent = append(append(sent, "--"), rest...)
	}
	for _, arg := range sent {
		if !utf8.ValidString(arg) {
			return nil, usagef("%q is not UTF-8; write it quoted as in Go, as ls does", arg)
		}
	}
	return sent, nil
}

// A recorded is the value of a flag that records how the flag is given.
type recorded struct {
	flag.Value
	name string
	to   *[]string
}

func (r recorded) Set(text string) error {
	*r.to = append(*r.to, "-"+r.name+"="+text)
	return r.Value.Set(text)
}

func (r recorded) IsBoolFlag() bool { return isBool(&flag.Flag{Value: r.Value}) }

// receive writes the outputs in the answer of a service, and returns its question, if it has one, and the outcome.
func (p *program) receive(ctx context.Context, answer io.Reader) (question string, err error) {
	for frames := json.NewDecoder(answer); ; {
		var one serve.Frame
		if err := frames.Decode(&one); err != nil {
			return "", cmp.Or(ctx.Err(), errCut)
		}
		question = cmp.Or(one.Ask, question)
		_, err = p.out.Write(one.Out)
		if err == nil {
			_, err = p.err.Write(one.Err)
		}
		switch {
		case err != nil:
			return "", err
		case one.Exit == nil:
		case *one.Exit == done:
			return "", nil
		default:
			return question, ended(*one.Exit)
		}
	}
}

// refusal returns the error of an answer that is not the output of a command.
func refusal(response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	says := strings.TrimSpace(string(text))
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return errors.New("the service does not know the token; -token-file or TIMEWHEEL_TOKEN has it")
	case http.StatusForbidden, http.StatusServiceUnavailable, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return fmt.Errorf("the service refuses the command: %s", says)
	}
	return fmt.Errorf(`the server answers %s: no timewheel serve with "operate": true has its operators' address there`,
		response.Status)
}

// command runs a command for an operator of a service, on the service's scheduler.
func (p *program) command(ctx context.Context, s *durable.Scheduler, call serve.Call) int {
	of := &program{
		in: strings.NewReader(""), out: call.Out, err: call.Err, getenv: func(string) string { return "" },
		now:   func() time.Time { return p.now().In(call.Zone) },
		width: call.Width, watched: call.Watched, who: call.Who, open: s, ask: call.Ask,
	}
	if call.Prefixes != nil || call.Kinds != nil {
		of.open = limited{s, call.Prefixes, call.Kinds, call.Log}
	}
	if len(call.Args) > 0 {
		c := find(call.Args[0])
		switch {
		case c != nil && !c.isRemote():
			of.complain("%s does not work over -url", c.name)
			return usage
		case c != nil && c.group == change:
			call.Log.Info("command of an operator", "args", call.Args)
		}
	}
	return of.run(ctx, call.Args)
}
