// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// keysOf returns the first keys that a walk yields, at most as many as given.
func keysOf(k *kit.Kit, prefix, after string, most int) (keys []string) {
	k.T.Helper()
	for i, err := range k.On().AllPrefix(ctx, prefix, after) {
		if len(keys) == most {
			break
		}
		k.Must(err)
		keys = append(keys, i.Key)
	}
	return keys
}

func manyByPrefix(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	const many = 1500 // more than the verbs process in one step
	want := map[string][]string{}
	var tasks []durable.Task
	add := func(prefix, key string) {
		delay := time.Minute + time.Duration(len(tasks)*7919%many)
		tasks = append(tasks, durable.Task{Key: key, Kind: "k", Delay: delay})
		want[prefix] = append(want[prefix], key)
	}
	for i := range many {
		add("order:", fmt.Sprintf("order:%04d", i))
	}
	for _, key := range []string{"order", "order;", "other", "\x00", "\xff"} {
		add("", key)
	}
	k.On().Add(tasks...)
	all := slices.Sorted(slices.Values(slices.Concat(want["order:"], want[""])))

	for _, c := range []struct {
		prefix, after string
		want          []string
	}{
		{"", "", all},
		{"order:", "", want["order:"]},
		{"order:", "a", want["order:"]},
		{"order:", "order:0099", want["order:"][100:]},
		{"order:", "order:0099x", want["order:"][100:]},
		{"order:000", "order:0007", []string{"order:0008", "order:0009"}},
		{"order:", "z", nil},
		{"none", "", nil},
	} {
		if got := keysOf(k, c.prefix, c.after, -1); !slices.Equal(got, c.want) {
			t.Errorf("AllPrefix(%q, %q): %q, want %q", c.prefix, c.after, got, c.want)
		}
	}
	var pages []string
	for page := keysOf(k, "", "", 400); page != nil; page = keysOf(k, "", page[len(page)-1], 400) {
		pages = append(pages, page...)
	}
	if !slices.Equal(pages, all) {
		t.Errorf("page by page: %q, want %q", pages, all)
	}

	asked := slices.Concat(want["order:"], []string{"none", "other", "order:0007", ""})
	infos, err := k.On().GetMany(ctx, asked...)
	var got []string
	for _, i := range infos {
		if one := k.Info(i.Key); fmt.Sprint(one) != fmt.Sprint(i) {
			t.Errorf("GetMany returns %+v, and Get %+v", i, one)
		}
		got = append(got, i.Key)
	}
	found := append(slices.Clone(want["order:"]), "other", "order:0007")
	if err != nil || !slices.Equal(got, found) {
		t.Errorf("GetMany: %q, %v, want %q", got, err, found)
	}
	if none, err := k.On().GetMany(ctx); none != nil || err != nil {
		t.Errorf("GetMany of nothing: %v, %v", none, err)
	}

	is := func(what string, n int, err error, want int) {
		t.Helper()
		if n != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", what, n, err, want)
		}
	}
	n, err := k.On().ReschedulePrefix(ctx, "order:00", time.Second)
	is("move", n, err, 100)
	n, err = k.On().ReschedulePrefix(ctx, "none", time.Second)
	is("move none", n, err, 0)
	calls := k.RunsAfter(2 * time.Second)
	if len(calls) != 100 || slices.ContainsFunc(calls, func(c kit.Call) bool { return c.Key >= "order:01" }) {
		t.Errorf("moved, these have run: %v", calls)
	}
	n, err = k.On().RemovePrefix(ctx, "order:")
	is("remove", n, err, many-100)
	n, err = k.On().RemovePrefix(ctx, "order:")
	is("remove again", n, err, 0)
	if got := keysOf(k, "", "", -1); len(got) != len(want[""]) {
		t.Errorf("left are %q", got)
	}
	n, err = k.On().ReschedulePrefix(ctx, "", 2*time.Minute)
	is("move all", n, err, len(want[""]))
	n, err = k.On().RemovePrefix(ctx, "")
	is("remove all", n, err, len(want[""]))
	k.After(3 * time.Minute)
	k.RanNothing()
	done, cancel := context.WithCancel(ctx)
	cancel()
	if n, err := k.On().RemovePrefix(done, ""); n != 0 || err != context.Canceled {
		t.Errorf("with a context that is done: %d, %v", n, err)
	}
	if _, err := k.On().GetMany(done, "a"); err != context.Canceled {
		t.Errorf("GetMany with a context that is done: %v", err)
	}
}
