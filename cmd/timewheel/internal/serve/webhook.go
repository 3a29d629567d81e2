// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed581295f1/timewheel/durable"
)

const (
	mostAnswer  = durable.MaxHistoryNote // bytes of an answer's body that are read
	mostExcerpt = 160                    // of these in an error
	defaultNote = 256                    // bytes of Run.Complete that package durable keeps in any history
	mostHeaders = 64 << 10               // maximum size of an answer's headers, in bytes
	mostWait    = 24 * time.Hour         // of Retry-After
	dialTimeout = 10 * time.Second

	// idleWebhook is how long an idle connection to a receiver is kept. It is shorter than what common servers wait before
	// they close one (2 s and more), so a request rarely meets a connection that is being closed, which fails the attempt.
	idleWebhook = time.Second
)

// A webhook calls the receiver of a kind. Its method run is the handler of the kind.
type webhook struct {
	kind    string // as in the header
	of      *Kind
	client  *http.Client
	answers *prometheus.CounterVec // by code
	breaker *breaker
}

// newWebhook returns the webhook of a kind. Its client sends a request at most once: it repeats one only if no byte of it
// was written. It would repeat any request with an Idempotency-Key, and an HTTP/2 client a request that the receiver refuses.
func newWebhook(name string, of *Kind, answers *prometheus.CounterVec, b *breaker) *webhook {
	dialer := &net.Dialer{
		Timeout: dialTimeout,
		Control: guard{of.Networks, of.target.Scheme == "http"}.control,
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &webhook{kind: escape(name), of: of, breaker: b, answers: answers.MustCurryWith(prometheus.Labels{"kind": name}),
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:                  nil, // the address of a proxy would be checked in place of the receiver's
				Protocols:              protocols,
				DialContext:            closingIdle(dialer.DialContext),
				TLSHandshakeTimeout:    dialTimeout,
				TLSClientConfig:        of.tls(),
				MaxConnsPerHost:        of.Concurrency, // there is one host, and each connection takes a file descriptor
				MaxIdleConnsPerHost:    of.Concurrency,
				DisableCompression:     true, // a small answer could become a large one
				MaxResponseHeaderBytes: mostHeaders,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
}

// handle registers the kinds, and the metrics of their webhooks.
func (srv *Server) handle(registry *prometheus.Registry) error {
	srv.answers = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "timewheel_serve_webhook_answers_total", Help: `Webhook calls, by the status of the answer; "none" without one.`,
	}, []string{"kind", "code"})
	registry.MustRegister(srv.answers)
	for _, kind := range slices.Sorted(maps.Keys(srv.cfg.Kinds)) {
		of := srv.cfg.Kinds[kind]
		if of.Elsewhere {
			if err := srv.s.Declare(kind); err != nil {
				return err
			}
			continue
		}
		b, c := &breaker{kind: kind, log: srv.log}, new(current)
		c.Store(newWebhook(kind, of, srv.answers, b))
		srv.webhooks[kind] = c
		if err := srv.s.Handle(kind, c.run, of.options()...); err != nil {
			return fmt.Errorf("kind %s: %w", kind, err)
		}
		registry.MustRegister(b.gauge())
	}
	return nil
}

// run calls the receiver, or postpones the run if the breaker is open.
func (h *webhook) run(ctx context.Context, run durable.Run) error {
	probe, admitted := h.breaker.admit(time.Now())
	if !admitted {
		return durable.Snooze(waitOf(run.Lateness()))
	}
	is := isUnknown
	var err error
	defer func() { h.breaker.end(probe, is, err, time.Now()) }()
	is, err = h.call(ctx, run)
	return err
}

// call calls the receiver.
func (h *webhook) call(ctx context.Context, run durable.Run) (health, error) {
	takes, leave := taking(ctx)
	defer leave()
	req, err := h.request(takes, run, time.Now())
	if err != nil {
		return isUnknown, durable.Park(err)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		h.answers.WithLabelValues("none").Inc()
		is := isFailing
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
			is = isUnknown // it was cancelled
		}
		return is, unanswered(ctx, err)
	}
	h.answers.WithLabelValues(strconv.Itoa(resp.StatusCode)).Inc()
	var body []byte
	if resp.StatusCode != http.StatusSwitchingProtocols { // after that the timeout does not bound the body
		body, _ = io.ReadAll(io.LimitReader(resp.Body, mostAnswer)) // the status counts, even if the body breaks off
	}
	_ = resp.Body.Close()
	err = h.judge(resp, body, time.Now())
	if err == nil {
		h.complete(ctx, run, resp.Status, body)
	}
	return healthOf(resp.StatusCode), err
}

// request returns the signed request of a run.
func (h *webhook) request(ctx context.Context, run durable.Run, now time.Time) (*http.Request, error) {
	to, err := fill(h.of.URL, run.Key)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, h.of.Method, to, bytes.NewReader(run.Payload))
	if err != nil {
		return nil, err
	}
	m := message{
		kind: h.kind, key: escape(run.Key), token: escape(run.Token.String()), attempt: strconv.Itoa(run.Attempt),
		fence: strconv.FormatInt(run.Fence, 10), due: run.Due.UTC().Format(time.RFC3339Nano), body: run.Payload,
	}
	for name, values := range h.of.headers {
		req.Header[name] = values
	}
	h.of.setHeaders(req.Header, run.Meta)
	set := func(name, value string) { req.Header[name] = []string{value} }
	set("Content-Type", h.of.ContentType)
	set("User-Agent", "timewheel")
	set(headerKind, m.kind)
	set(headerKey, m.key)
	set(headerToken, m.token)
	set(headerAttempt, m.attempt)
	set(headerFence, m.fence)
	set(headerDue, m.due)
	set(headerSignature, m.sign(h.of.Secrets, now))
	set(headerStandardID, m.standardID())
	set(headerStandardTimestamp, strconv.FormatInt(now.Unix(), 10))
	set(headerStandardSignature, m.standardSignature(h.of.Secrets, now))
	parent, state := splitTrace(run.Trace)
	if parent != "" {
		set("Traceparent", parent)
		if state != "" {
			set("Tracestate", state)
		}
	}
	return req, nil
}

// judge returns the error with which the handler ends, or nil if the answer completes the run.
func (h *webhook) judge(resp *http.Response, body []byte, now time.Time) error {
	code := resp.StatusCode
	if code >= 200 && code <= 299 {
		return nil
	}
	err := fmt.Errorf("webhook: answer %d %s%s", code, http.StatusText(code), excerpt(body))
	switch {
	case code >= 300 && code <= 399:
		return fmt.Errorf("webhook: answer %d %s: redirects are not followed", code, http.StatusText(code))
	case code == http.StatusGone:
		return durable.Park(err)
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			now = at // by the receiver's clock
		}
		if d := retryAfter(resp.Header.Get("Retry-After"), now); d > 0 {
			return durable.RetryAfter(d, err)
		}
	}
	return err
}

// retryAfter returns the wait that a Retry-After header asks for, in seconds or as a date. It returns 0 or less if there
// is none.
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if n, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, uint64(mostWait/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(at.Sub(now), mostWait)
}

// complete notes the beginning of an answer if the history keeps it. If the status came in time and the body did not, the
// note is the status, because the run would otherwise have failed.
func (h *webhook) complete(ctx context.Context, run durable.Run, status string, body []byte) {
	note := ""
	if ctx.Err() != nil {
		note = status
	} else if h.of.History != nil {
		note = printable(body, h.of.History.Answer)
	}
	if note != "" {
		run.Complete(note)
	}
}

// excerpt returns ": " and the beginning of a body, to be appended to an error message.
func excerpt(body []byte) string {
	if text := printable(body, mostExcerpt); text != "" {
		return ": " + text
	}
	return ""
}

// printable returns the first bytes of a body without bytes that are not UTF-8, and with one space for each sequence of
// spaces and unprintable characters.
func printable(body []byte, most int) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), most)]), "")
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }), " ")
}

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// splitTrace splits the trace of a task at its space into the two headers of W3C Trace Context. Both are empty if the
// first is not valid.
func splitTrace(trace string) (parent, state string) {
	parent, state, _ = strings.Cut(trace, " ")
	if !isTraceparent(parent) {
		return "", ""
	}
	if strings.ContainsFunc(state, func(r rune) bool { return r < ' ' || r > '~' }) {
		state = ""
	}
	return parent, state
}

func isTraceparent(s string) bool {
	return traceparent.MatchString(s) && s[:2] != "ff" && strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

// joinTrace returns the trace of a task from the headers of the request that adds it.
func joinTrace(h http.Header) string {
	parent, state := h.Get("Traceparent"), strings.Join(h.Values("Tracestate"), ",")
	if !isTraceparent(parent) {
		return ""
	}
	if state != "" && len(parent)+1+len(state) <= durable.MaxTrace {
		return parent + " " + state
	}
	return parent
}
