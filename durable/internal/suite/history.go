// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// past returns the attempts of the query, each as its key, the number of the attempt and its outcome.
func past(k *kit.Kit, q durable.HistoryQuery) (all []string) {
	k.T.Helper()
	found, err := k.On().History(ctx, q)
	k.Must(err)
	for _, r := range found.Runs {
		all = append(all, fmt.Sprint(r.Key, " ", r.Attempt.Attempt, " ", r.Outcome()))
	}
	return all
}

// The history has each attempt with its outcome, newest first, on every node.
func historyOfOutcomes(t *testing.T, k *kit.Kit) {
	keep := durable.WithHistory(100, time.Hour)
	k.Handle("k", func(ctx context.Context, run durable.Run) error {
		switch {
		case run.Key == "noted":
			time.Sleep(200 * time.Millisecond)
			run.Complete("nothing to do")
		case run.Key == "fails" && run.Attempt == 1:
			return errNot
		case run.Key == "parks":
			return durable.Park(errNot)
		case run.Key == "cancelled" && run.Attempt == 1:
			<-ctx.Done()
			return ctx.Err()
		case run.Key == "snoozes" && time.Since(run.Due) < time.Second:
			return durable.Snooze(2 * time.Second)
		}
		return nil
	}, durable.WithRetry(2, 4*time.Second, 4*time.Second), keep)
	k.Handle("other", func(context.Context, durable.Run) error { return nil }, keep)
	k.Handle("none", func(context.Context, durable.Run) error { return nil })
	task := func(key, kind string, delay time.Duration) durable.Task {
		return durable.Task{Key: key, Kind: kind, Delay: delay, Group: "of " + key}
	}
	begun := time.Now()
	k.On().Add(task("noted", "k", time.Second), task("fails", "k", 1500*time.Millisecond), task("parks", "k", 2*time.Second),
		task("snoozes", "k", 2500*time.Millisecond), task("o", "other", 3*time.Second), task("unseen", "none", 3*time.Second),
		task("cancelled", "k", 3500*time.Millisecond))
	k.After(4 * time.Second)
	if _, err := k.On().Cancel(ctx, "cancelled"); err != nil {
		t.Errorf("cancel: %v", err)
	}
	k.After(5 * time.Second)
	k.Must(k.On().PauseKind(ctx, "k"))
	k.After(3 * time.Second)
	late := task("expires", "k", time.Second)
	late.Expires = time.Second
	k.On().Add(late)
	k.After(5 * time.Second)
	k.Must(k.On().ResumeKind(ctx, "k"))
	k.After(12 * time.Second)

	all := past(k, durable.HistoryQuery{})
	slices.Sort(all) // the second attempts end at about the same time
	want := []string{
		"cancelled 1 cancelled", "cancelled 2 succeeded", "expires 1 expired", "fails 1 failed", "fails 2 succeeded",
		"noted 1 succeeded", "o 1 succeeded", "parks 1 parked", "snoozes 1 snoozed", "snoozes 1 succeeded",
	}
	if !slices.Equal(all, want) {
		t.Fatalf("the history is %q, want %q", all, want)
	}
	for _, of := range []struct {
		q    durable.HistoryQuery
		want []string
	}{
		{durable.HistoryQuery{Key: "snoozes"}, []string{"snoozes 1 succeeded", "snoozes 1 snoozed"}},
		{durable.HistoryQuery{Key: "fails", Kind: "k"}, []string{"fails 2 succeeded", "fails 1 failed"}},
		{durable.HistoryQuery{Key: "fails", Kind: "k", Limit: 1}, []string{"fails 2 succeeded"}},
		{durable.HistoryQuery{Key: "fails", Kind: "other"}, nil},
		{durable.HistoryQuery{Kind: "other"}, []string{"o 1 succeeded"}},
		{durable.HistoryQuery{Kind: "none"}, nil},
		{durable.HistoryQuery{Prefix: "pa"}, []string{"parks 1 parked"}},
		{durable.HistoryQuery{Group: "of parks"}, []string{"parks 1 parked"}},
		{durable.HistoryQuery{Outcomes: []string{durable.OutcomeExpired}}, []string{"expires 1 expired"}},
		{durable.HistoryQuery{Outcomes: []string{durable.OutcomeFailed, durable.OutcomeParked}}, []string{"parks 1 parked", "fails 1 failed"}},
		{durable.HistoryQuery{Node: "none"}, nil},
	} {
		if got := past(k, of.q); !slices.Equal(got, of.want) {
			t.Errorf("the history of %+v is %q, want %q", of.q, got, of.want)
		}
	}

	found, err := k.On().History(ctx, durable.HistoryQuery{Key: "noted"})
	k.Must(err)
	r := found.Runs[0]
	for _, of := range []struct {
		q    durable.HistoryQuery
		want int
	}{
		{durable.HistoryQuery{From: r.Ended}, 1},
		{durable.HistoryQuery{From: r.Ended.Add(1)}, 0},
		{durable.HistoryQuery{From: time.Unix(0, -1)}, 1},
		{durable.HistoryQuery{Before: r.Ended}, 0},
		{durable.HistoryQuery{From: r.Ended, Before: r.Ended.Add(1)}, 1},
	} {
		of.q.Key = "noted"
		if got := past(k, of.q); len(got) != of.want {
			t.Errorf("the history of %+v is %q, want %d attempts", of.q, got, of.want)
		}
	}
	nodes, err := k.On().Scheduler.Nodes(ctx)
	k.Must(err)
	if r.Kind != "k" || r.Group != "of noted" || r.Note != "nothing to do" || r.Failure != "" || r.Generation == 0 ||
		r.Token.Seq != 0 || !slices.ContainsFunc(nodes, func(n durable.NodeInfo) bool { return n.Name == r.Node }) {
		t.Errorf("an attempt is %+v", r)
	}
	if due := r.Due.Sub(begun); due < 990*time.Millisecond || due > 1100*time.Millisecond {
		t.Errorf("it was due after %v", due)
	}
	if wait, took := r.Started.Sub(r.Due), r.Ended.Sub(r.Started); wait < 0 || wait > 500*time.Millisecond ||
		took < 200*time.Millisecond || took > 700*time.Millisecond {
		t.Errorf("it started %v late and took %v", wait, took)
	}
	if found, err = k.On().History(ctx, durable.HistoryQuery{Key: "parks"}); err != nil || found.Runs[0].Failure != errNot.Error() {
		t.Errorf("a failed attempt is %+v, %v", found, err)
	}

	var pages []string
	for q := (durable.HistoryQuery{Limit: 3}); ; {
		page, err := k.On().History(ctx, q)
		k.Must(err)
		for i, r := range page.Runs {
			pages = append(pages, fmt.Sprint(r.Token, r.Attempt.Attempt, r.Ended))
			if i > 0 && r.Ended.After(page.Runs[i-1].Ended) {
				t.Errorf("%v comes after %v", r, page.Runs[i-1])
			}
		}
		if q.After = page.Next; q.After == "" {
			break
		}
		if len(page.Runs) != q.Limit {
			t.Errorf("a page with a next one has %d attempts", len(page.Runs))
		}
	}
	slices.Sort(pages)
	if n := len(slices.Compact(pages)); n != len(want) {
		t.Errorf("the pages have %d attempts: %q", n, pages)
	}
	for _, q := range []durable.HistoryQuery{{Limit: -1}, {Outcomes: []string{"wonderful"}}, {After: "no"}, {After: "!"}} {
		if _, err := k.On().History(ctx, q); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("the query %+v returns %v", q, err)
		}
	}
}
