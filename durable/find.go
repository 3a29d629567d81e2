// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	pageLimit = 100
	lookFor   = 150 * time.Millisecond
)

// find walks over all tasks in due order.
func (s *Scheduler) find(ctx context.Context, q Query) (f Found, err error) {
	after, err := parsePosition(q.After)
	if err != nil {
		return f, err
	}
	limit := cmp.Or(q.Limit, pageLimit)
	began := time.Now()
	var at Position
	for info, err := range s.All(ctx) {
		if err != nil {
			return f, err
		}
		p := Position{never, info.Key}
		if !info.Parked {
			p.Due = info.Next.UnixNano()
		}
		if !after.before(p) {
			continue
		}
		if len(f.Tasks) == limit || time.Since(began) >= cmp.Or(q.For, lookFor) {
			f.Cut = len(f.Tasks) < limit
			f.Next = at.text()
			return f, nil
		}
		f.Looked++
		at = p
		if s.fits(q, info) {
			f.Tasks = append(f.Tasks, info)
		}
	}
	return f, nil
}

func (s *Scheduler) fits(q Query, i Info) bool {
	return strings.HasPrefix(i.Key, q.Prefix) && (q.Kind == "" || q.Kind == i.Kind) &&
		(!q.Repeating || i.Times != 1) &&
		(q.State == AnyState || q.State == i.State) &&
		(q.Failure == "" || strings.Contains(i.Failure, q.Failure) || groupText(i.Failure) == q.Failure)
}

func (p Position) text() string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(p.Due)), p.Key...))
}

func parsePosition(text string) (p Position, err error) {
	if text == "" {
		return Position{Due: None}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 8 {
		return p, fmt.Errorf("%w: After %q is not the Next of a page", ErrInvalidTask, text)
	}
	return Position{int64(binary.BigEndian.Uint64(b)), string(b[8:])}, nil
}

// groupText returns an error with # in place of each number.
func groupText(s string) string {
	var b strings.Builder
	digit := false
	for _, r := range s {
		is := r >= '0' && r <= '9'
		if !is {
			b.WriteRune(r)
		} else if !digit {
			b.WriteByte('#')
		}
		digit = is
	}
	return b.String()
}

func (s *Scheduler) census(ctx context.Context) (Census, error) {
	c := Census{At: time.Unix(0, s.below.now()), Whole: true}
	of := make(map[string]*KindCensus)
	for i, err := range s.All(ctx) {
		if err != nil {
			return c, err
		}
		k := of[i.Kind]
		if k == nil {
			k = &KindCensus{Kind: i.Kind}
			of[i.Kind] = k
		}
		k.Tasks++
		if i.Attempts > 0 {
			k.Failing++
		}
		if i.Parked {
			k.Parked++
		}
	}
	for _, k := range of {
		c.Kinds = append(c.Kinds, *k)
	}
	slices.SortFunc(c.Kinds, func(a, b KindCensus) int { return cmp.Compare(a.Kind, b.Kind) })
	return c, nil
}

func (s *Scheduler) failures(ctx context.Context) (f Failures, err error) {
	of := make(map[[2]string]*FailureGroup)
	for i, err := range s.All(ctx) {
		if err != nil {
			return f, err
		}
		if i.Attempts == 0 {
			continue
		}
		f.Looked++
		text := groupText(i.Failure)
		g := of[[2]string{i.Kind, text}]
		if g == nil {
			g = &FailureGroup{Kind: i.Kind, Text: text, Example: i.Key}
			of[[2]string{i.Kind, text}] = g
		}
		g.Tasks++
		if i.Parked {
			g.Parked++
		}
	}
	for _, g := range of {
		f.Groups = append(f.Groups, *g)
	}
	slices.SortFunc(f.Groups, func(a, b FailureGroup) int {
		return cmp.Or(-cmp.Compare(a.Tasks, b.Tasks), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	return f, nil
}

func (s *Scheduler) nodes(context.Context) ([]NodeInfo, error) {
	st := s.wheel.Stats()
	return []NodeInfo{{Self: true, NodeReport: NodeReport{
		Kinds: s.kinds.names(), Waiting: st.Waiting, Running: st.Running, Workers: st.Workers,
	}}}, nil
}

func (s *Scheduler) kindInfos() (all []KindInfo) {
	for _, name := range s.kinds.names() {
		k := s.kinds.get(name)
		all = append(all, KindInfo{
			Kind: name, Attempts: int(k.attempts), Least: k.least, Most: k.most, Missed: k.missed,
			Started: k.count.started.Load(), Succeeded: k.count.succeeded.Load(), Failed: k.count.failed.Load(),
			Parked: k.count.parked.Load(),
		})
	}
	slices.SortFunc(all, func(a, b KindInfo) int { return cmp.Compare(a.Kind, b.Kind) })
	return all
}

func (s *Scheduler) catchUp(ctx context.Context) (c CatchUp, err error) {
	f, err := s.find(ctx, Query{State: Waiting, Limit: 1 << 20})
	if err != nil || len(f.Tasks) == 0 {
		return c, err
	}
	return CatchUp{Left: len(f.Tasks), Cut: f.Cut, Oldest: f.Tasks[0].Next}, nil
}

func (s *Scheduler) bulk(ctx context.Context, q Query, do Action) (n int, err error) {
	q.Limit = 1000
	for {
		f, err := s.find(ctx, q)
		if err != nil {
			return n, err
		}
		for _, i := range f.Tasks {
			switch do {
			case DoRemove:
				err = s.RemoveTask(ctx, i.Key)
			case DoRunNow:
				err = s.Reschedule(ctx, i.Key, 0)
			}
			if err != nil {
				return n, err
			}
			n++
		}
		if q.After = f.Next; q.After == "" {
			return n, nil
		}
	}
}
