// SPDX-License-Identifier: MIT

package serve

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A Kind is a kind of tasks, with the webhook that is called when one is due.
type Kind struct {
	URL                string            `json:"url"`                  // may contain {key}
	Method             string            `json:"method"`               // POST (the default), PUT, PATCH or DELETE
	Secrets            []Secret          `json:"secrets" reload:"yes"` // each signs every request
	Networks           []Network         `json:"networks"`             // allowed though private, and without TLS
	Headers            map[string]Secret `json:"headers" reload:"yes"` // added to each request
	TaskHeaders        []string          `json:"task_headers"`         // names of headers that a task may set
	CAFile             string            `json:"ca_file" reload:"yes"` // certificates, in PEM, in place of the system's
	ClientCertificate  *TLS              `json:"client_certificate" reload:"yes"`
	ContentType        string            `json:"content_type"`               // of the payload; application/json
	Timeout            Duration          `json:"timeout" positive:"yes"`     // of an attempt; 10s
	Concurrency        int               `json:"concurrency" positive:"yes"` // 100
	Rate               *Rate             `json:"rate"`
	ClusterConcurrency int               `json:"cluster_concurrency" positive:"yes"`
	ClusterRate        *Rate             `json:"cluster_rate"`
	Retry              Retry             `json:"retry"`
	ParkRepeating      bool              `json:"park_repeating"`        // as durable.WithParkRepeating
	OnFailure          string            `json:"on_failure"`            // the kind of the task that is added when one is parked or gives up a run
	Missed             string            `json:"missed"`                // once (the default), skip or all
	History            *History          `json:"history"`               // none: attempts are not kept
	Elsewhere          bool              `json:"elsewhere"`             // other nodes run the tasks
	Dedupe             Duration          `json:"dedupe" positive:"yes"` // how long idempotency keys are remembered; 1h
	DedupeKey          bool              `json:"dedupe_key"`            // each task has an idempotency key: its own key

	target    *url.URL
	headers   http.Header
	authority *authority // of CAFile; nil without one
}

// A Rate holds the arguments of durable.WithRate.
type Rate struct {
	Runs  int      `json:"runs" positive:"yes"`
	Per   Duration `json:"per" positive:"yes"`   // 1s
	Burst int      `json:"burst" positive:"yes"` // Runs
}

// Retry holds the arguments of durable.WithRetry.
type Retry struct {
	Attempts int      `json:"attempts" positive:"yes"` // 40
	Least    Duration `json:"least" positive:"yes"`    // 1s
	Most     Duration `json:"most" positive:"yes"`     // 1h
}

// The defaults of Retry. A receiver may be away for most of a day before a task is parked.
const (
	defaultAttempts = 40
	defaultLeast    = time.Second
	defaultMost     = time.Hour
)

// History holds the arguments of durable.WithHistory.
type History struct {
	Attempts int      `json:"attempts" positive:"yes"` // 1000
	Age      Duration `json:"age" positive:"yes"`      // 24h
	Answer   int      `json:"answer"`                  // bytes of the body of an answer that completes a run; 0
}

func (k *checker) kind(field, name string, of *Kind) {
	switch {
	case of == nil:
		k.wrong(field, "null is no kind")
		return
	case name == durable.OnceKind || name == "" || name == "*" || len(name) > durable.MaxKind || strings.ContainsRune(name, 0x1f):
		k.wrong("kinds", "name %q must have 1 to %d bytes, none of them 0x1f, and not be * or %s", name, durable.MaxKind, durable.OnceKind)
	}
	if !k.knows(field + ".elsewhere") {
		return
	}
	if of.Elsewhere {
		if !reflect.DeepEqual(of, &Kind{Elsewhere: true}) {
			k.wrong(field+".elsewhere", "a kind that runs elsewhere has no other fields")
		}
		return
	}
	k.webhook(field, of)
	if other, is := k.config.Kinds[of.OnFailure]; of.OnFailure != "" && (!is || other != nil && other.OnFailure != "") {
		k.wrong(field+".on_failure", "%q must be one of the kinds, and one without on_failure", of.OnFailure)
	}
	of.Timeout = cmp.Or(of.Timeout, Duration(defaultTimeout))
	of.Dedupe = cmp.Or(of.Dedupe, Duration(defaultDedupe))
	k.oneOf(field+".missed", &of.Missed, "once", "skip", "all")
	if of.Concurrency = cmp.Or(of.Concurrency, defaultConcurrency); of.Concurrency > mostConcurrency {
		k.wrong(field+".concurrency", "%d is not between 1 and %d", of.Concurrency, mostConcurrency)
	}
	k.rate(field+".rate", of.Rate)
	k.rate(field+".cluster_rate", of.ClusterRate)
	if h := of.History; h != nil {
		if h.Attempts = cmp.Or(h.Attempts, defaultHistory); h.Attempts > durable.MaxHistory {
			k.wrong(field+".history.attempts", "%d is not between 1 and %d", h.Attempts, durable.MaxHistory)
		}
		h.Age = cmp.Or(h.Age, Duration(24*time.Hour))
		if h.Answer < 0 || h.Answer > mostAnswer {
			k.wrong(field+".history.answer", "%d is not between 0 and %d", h.Answer, mostAnswer)
		}
	}
	r := &of.Retry
	r.Attempts = cmp.Or(r.Attempts, defaultAttempts)
	r.Least = cmp.Or(r.Least, Duration(defaultLeast))
	r.Most = cmp.Or(r.Most, max(Duration(defaultMost), r.Least))
	if r.Most < r.Least && k.knows(field+".retry.least") {
		k.wrong(field+".retry.most", "%v is shorter than least, %v", time.Duration(r.Most), time.Duration(r.Least))
	}
}

// webhook checks the target of the kind.
func (k *checker) webhook(field string, of *Kind) {
	target, err := parseURL(of.URL)
	if err != nil {
		k.wrong(field+".url", "%v", err)
	} else if target.Scheme == "http" && len(of.Networks) == 0 && k.knows(field+".networks") {
		k.wrong(field+".url", "http needs networks, the only addresses that are called without TLS")
	}
	of.target = target
	k.receiverTLS(field, of)
	// GET is missing: a client repeats it by itself.
	k.oneOf(field+".method", &of.Method, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)
	if len(of.Secrets) == 0 {
		k.wrong(field+".secrets", "none are given; each request is signed")
	}
	for i := range of.Secrets {
		name := fmt.Sprintf("%s.secrets[%d]", field, i)
		k.secret(name, &of.Secrets[i])
		if err := of.Secrets[i].checkStandard(); err != nil {
			k.wrong(name, "%v", err)
		}
	}
	for i, n := range of.Networks {
		if !n.IsValid() {
			k.wrong(fmt.Sprintf("%s.networks[%d]", field, i), "it is not a network such as 10.1.0.0/16")
		} else if of.Networks[i].Prefix = n.Masked(); of.Networks[i] != n {
			k.wrong(fmt.Sprintf("%s.networks[%d]", field, i), "%s has bits after its length; do you mean %s?", n, n.Masked())
		}
	}
	k.reachable(field+".url", field+".networks", of)
	of.headers = make(http.Header)
	for _, name := range slices.Sorted(maps.Keys(of.Headers)) {
		value := of.Headers[name]
		k.resolve(field+".headers."+name, &value)
		switch {
		case isReserved(name):
			k.wrong(field+".headers."+name, "a header of this name cannot be set")
		case of.headers.Values(name) != nil:
			k.wrong(field+".headers."+name, "it is given twice")
		case !isHeaderText(string(value)):
			k.wrong(field+".headers."+name, "the value is not printable ASCII")
		default:
			of.headers.Set(name, string(value))
		}
	}
	k.taskHeaders(field+".task_headers", of)
	if of.ContentType == "" {
		of.ContentType = "application/json"
	}
	if !isHeaderText(of.ContentType) {
		k.wrong(field+".content_type", "%q is not printable ASCII", of.ContentType)
	}
}

// ownHeaders are the headers that the configuration cannot set: the client sets them, or repeats requests that have one.
var ownHeaders = []string{"Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection", "Trailer", "Upgrade",
	headerStandardID, headerStandardTimestamp, headerStandardSignature,
	"Te", "Keep-Alive", "Traceparent", "Tracestate", "User-Agent", "Idempotency-Key", "X-Idempotency-Key"}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// options returns the options of the kind.
func (of *Kind) options() []durable.KindOption {
	opts := []durable.KindOption{
		durable.WithTimeout(time.Duration(of.Timeout)), durable.WithConcurrency(of.Concurrency),
		durable.WithMissed(map[string]durable.Missed{
			"skip": durable.MissedSkip, "all": durable.MissedAll,
		}[of.Missed]),
		durable.WithOnce(time.Duration(of.Dedupe)),
		durable.WithRetry(of.Retry.Attempts, time.Duration(of.Retry.Least), time.Duration(of.Retry.Most)),
	}
	if r := of.Rate; r != nil {
		opts = append(opts, durable.WithRate(r.Runs, time.Duration(r.Per), r.Burst))
	}
	if of.ClusterConcurrency > 0 {
		opts = append(opts, durable.WithClusterConcurrency(of.ClusterConcurrency))
	}
	if r := of.ClusterRate; r != nil {
		opts = append(opts, durable.WithClusterRate(r.Runs, time.Duration(r.Per), r.Burst))
	}
	if of.ParkRepeating {
		opts = append(opts, durable.WithParkRepeating())
	}
	if of.OnFailure != "" {
		opts = append(opts, durable.WithOnFailure(of.about))
	}
	if h := of.History; h != nil {
		opts = append(opts, durable.WithHistory(h.Attempts, time.Duration(h.Age)))
		if h.Answer > defaultNote {
			opts = append(opts, durable.WithHistoryNotes(h.Answer))
		}
	}
	return opts
}
