// SPDX-License-Identifier: MIT

package serve

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// An attemptResponse is an attempt that has ended. Times are in UTC.
type attemptResponse struct {
	Key       string    `json:"key,omitempty"`
	KeyBase64 []byte    `json:"key_base64,omitempty"` // in place of key, if that is not UTF-8
	Kind      string    `json:"kind"`
	Group     string    `json:"group,omitempty"`
	Outcome   string    `json:"outcome"`
	Token     string    `json:"token"`   // of the run, as in the header
	Attempt   int       `json:"attempt"` // 1 for the first
	Due       time.Time `json:"due"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	Failure   string    `json:"failure,omitempty"`
	Note      string    `json:"note,omitempty"`
}

func newAttemptResponse(r durable.PastRun) attemptResponse {
	a := attemptResponse{
		Kind: r.Kind, Group: r.Group, Outcome: r.Outcome(), Token: escape(r.Token.String()), Attempt: r.Attempt.Attempt,
		Due: r.Due.UTC(), Started: r.Started.UTC(), Ended: r.Ended.UTC(), Failure: forCallers(r.Failure), Note: r.Note,
	}
	a.Key, a.KeyBase64 = keyFields(r.Key)
	return a
}

// A historyResponse is a page of attempts, newest first.
type historyResponse struct {
	Attempts []attemptResponse `json:"attempts"`
	Next     string            `json:"next,omitempty"` // after= of the next page; none if this is the last
}

// mostAttempts returns the maximum number of attempts in a page, of one kind or of all if it is empty. With long answers it
// is lower, so that a page never takes much memory.
func (a *api) mostAttempts(kind string) int {
	longest := defaultNote
	for name, of := range a.of {
		if of.History != nil && (kind == "" || kind == name) {
			longest = max(longest, of.History.Answer)
		}
	}
	return mostPage * defaultNote / longest
}

func (a *api) history(c *caller, w http.ResponseWriter, r *http.Request) error {
	q, limit, wrong := page(r, "prefix", "kind", "key", "outcome")
	of := durable.HistoryQuery{Prefix: q.Get("prefix"), Key: q.Get("key"), After: a.seal.after(c, q.Get("after")), Limit: limit}
	if outcomes := q.Get("outcome"); outcomes != "" {
		of.Outcomes = strings.Split(outcomes, ",")
		for _, name := range of.Outcomes {
			if !slices.Contains(durable.Outcomes(), name) {
				wrong.add("outcome", fmt.Sprintf("%q", name), "%s", oneOf(name, durable.Outcomes()))
			}
		}
	}
	var err error
	of.Kind, err = c.mayList(cmp.Or(of.Key, of.Prefix), q.Get("kind")) // a right to the key is enough
	if err := wrong.with(err); err != nil {
		return err
	}
	of.Limit = min(limit, a.mostAttempts(of.Kind))
	found, err := a.s.History(r.Context(), of)
	if err != nil {
		return ofCursor(err, q.Get("after"))
	}
	answer := historyResponse{Attempts: []attemptResponse{}, Next: a.seal.next(c, found.Next)}
	for _, run := range found.Runs {
		answer.Attempts = append(answer.Attempts, newAttemptResponse(run))
	}
	return writeJSON(w, answer)
}
