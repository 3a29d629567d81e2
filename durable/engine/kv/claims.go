// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A candidate is a task found through an f or g row.
type candidate struct {
	due int64
	key string
	row engine.Entry
}

// readable reports whether the version of the record is at most version.
func (c *candidate) readable(version byte) bool {
	return len(c.row.Value) == 0 || c.row.Value[0] <= version
}

func (c candidate) before(d candidate) bool { return c.due < d.due || c.due == d.due && c.key < d.key }

// A source reads rows in due order, a page at a time.
type source struct {
	at   candidate // the current candidate
	rows []engine.Entry
	from string // where the next page begins; empty after the last one
	to   string // where the last page ends
	page int    // the number of rows of the next page
	most int    // how many rows are still wanted, about
	skip int    // number of bytes in the key before the due time
}

// A page has about as many rows as are still wanted, but at most mostRows and mostBytes, and it is read for at most
// pageFor from the first row on. The first page has few, because another source of the merge may have the earliest rows.
const (
	fewRows   = 16
	mostRows  = 1024
	mostBytes = 1 << 20
)

// A merge merges several sources in due order. It ends at the first error.
type merge struct {
	scan    func(from, to string) iter.Seq2[engine.Entry, error]
	sources []*source
	err     error
}

func (b *base) newMerge(ctx context.Context) *merge {
	return &merge{scan: func(from, to string) iter.Seq2[engine.Entry, error] { return b.kv.Scan(ctx, from, to) }}
}

// add adds the rows between two keys, which have skip bytes before the due time. About most rows are wanted.
func (m *merge) add(from, to string, skip, most int) {
	s := &source{from: from, to: to, page: min(most, fewRows), most: most, skip: skip}
	if m.advance(s) {
		m.sources = append(m.sources, s)
	}
}

// advance moves the source to its next candidate and reports whether there is one.
func (m *merge) advance(s *source) bool {
	if len(s.rows) == 0 && s.from != "" {
		m.read(s)
	}
	if len(s.rows) == 0 {
		return false
	}
	e := s.rows[0]
	s.rows = s.rows[1:]
	s.at.due, s.at.key = number(e.Key[s.skip:])
	s.at.row = e
	return true
}

// read reads the source's next page.
func (m *merge) read(s *source) {
	rows, from, bytes := make([]engine.Entry, 0, s.page), "", 0
	var first time.Time
	for e, err := range m.scan(s.from, s.to) {
		if err != nil {
			m.err = err
			return
		}
		if rows, bytes = append(rows, e), bytes+len(e.Value); len(rows) == 1 {
			first = time.Now()
		}
		if len(rows) == s.page || bytes >= mostBytes || time.Since(first) >= pageFor {
			from = e.Key + "\x00"
			break
		}
	}
	s.rows, s.from, s.most = rows, from, s.most-len(rows)
	s.page = min(4*s.page, max(s.most, fewRows), mostRows)
}

// next returns the earliest candidate, or false at the end.
func (m *merge) next() (c candidate, ok bool) {
	if len(m.sources) == 0 || m.err != nil {
		return c, false
	}
	first := 0
	for i, s := range m.sources {
		if s.at.before(m.sources[first].at) {
			first = i
		}
	}
	s := m.sources[first]
	c = s.at
	if !m.advance(s) {
		m.sources = slices.Delete(m.sources, first, first+1)
	}
	return c, m.err == nil
}

// mergeKinds walks over the f rows of all kinds in due order.
func (b *base) mergeKinds(ctx context.Context, after engine.Position, until int64) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		m := b.newMerge(ctx)
		for at := freeRow; m.err == nil; { // one kind per pass
			prefix := ""
			for e, err := range b.kv.Scan(ctx, at, end(freeRow)) {
				m.err = err
				prefix = e.Key
				break
			}
			if prefix == "" {
				break
			}
			kind, _ := unescaped(prefix[1:])
			for _, grouped := range []bool{false, true} {
				prefix = freeOf(kind, grouped)
				_, to := between(prefix, engine.None, until)
				m.add(prefix+afterKey(after), to, len(prefix), mostRows)
			}
			at = end(prefix)
		}
		for c, ok := m.next(); ok; c, ok = m.next() {
			if !yield(c, nil) {
				return
			}
		}
		if m.err != nil {
			yield(candidate{}, m.err)
		}
	}
}

// afterKey returns the encoding of the first due time and key after the position.
func afterKey(p engine.Position) string { return ordered(p.Due) + p.Key + "\x00" }

// wanted reports whether the task is free and matches the request.
func wanted(r engine.ClaimRequest, s *row) bool {
	return s.Owner == 0 && slices.Contains(r.Kinds, s.Kind) && (len(s.Data) == 0 || s.Data[0] <= r.Readable) &&
		s.Due <= r.Until && (r.Fair || s.Due > r.After)
}

// claim finds tasks that match the request and claims them. It continues past tasks that another member has claimed
// first. take claims the candidates that are still free and wanted, and returns them in order.
func (b *base) claim(ctx context.Context, r engine.ClaimRequest, take func([]candidate) ([]engine.Stored, error),
) (got []engine.Stored, next string, err error) {
	if r.Fair {
		found, next, err := b.turn(ctx, r)
		if err != nil {
			return nil, r.Group, err
		}
		got, err = take(found)
		return got, next, err
	}
	for after := (engine.Position{Due: r.After, Key: ""}); len(got) < r.Most; {
		found, err := b.earliest(ctx, r, after, r.Most-len(got))
		if err != nil {
			return got, "", unsure(len(got) > 0, err)
		}
		some, err := take(found)
		if err != nil {
			return got, "", unsure(len(got) > 0, err)
		}
		got = append(got, some...)
		if len(found) == 0 || len(found) < r.Most-len(got)+len(some) {
			break
		}
		last := found[len(found)-1]
		after = engine.Position{Due: last.due, Key: last.key}
	}
	return got, "", nil
}

// leastDue is where a claim from the beginning starts.
const leastDue = engine.None + 2

// earliest returns up to most candidates after the position, the earliest first.
func (b *base) earliest(ctx context.Context, r engine.ClaimRequest, after engine.Position, most int,
) (found []candidate, err error) {
	m := b.newMerge(ctx)
	for _, kind := range r.Kinds {
		for _, grouped := range []bool{false, true} {
			least := b.least(span{kind: kind, grouped: grouped})
			prefix := freeOf(kind, grouped)
			from, to := between(prefix, max(after.Due, least-1), r.Until)
			if after.Key != "" {
				from = prefix + max(ordered(least), afterKey(after))
			}
			m.add(from, to, len(prefix), most)
		}
	}
	return b.some(r, m, most)
}

// some returns up to most candidates from the merge that the member can read and that may be free.
func (b *base) some(r engine.ClaimRequest, m *merge, most int) (found []candidate, err error) {
	for len(found) < most {
		c, ok := m.next()
		if !ok {
			return found, m.err
		}
		if c.readable(r.Readable) && b.free(c.key) {
			found = append(found, c)
		}
	}
	return found, nil
}

// mostGroups is the maximum number of groups that a fair claim visits.
const mostGroups = 1000

// turn returns the candidates for a fair claim, and the last group that it has visited.
func (b *base) turn(ctx context.Context, r engine.ClaimRequest) (found []candidate, next string, err error) {
	var groups []string // the group of each candidate
	next = r.Group
	for looked, ended := 0, false; !ended && len(found) < r.Most && looked < mostGroups; looked++ {
		if next, err = b.groupAfter(ctx, r.Kinds, next); err != nil {
			return nil, "", err
		}
		first, err := b.firstOf(ctx, r, next, 1)
		if err != nil {
			return nil, "", err
		}
		for _, c := range first {
			found, groups = append(found, c), append(groups, next)
		}
		ended = next == ""
	}
	if r.Group != "" || next != "" || len(found) == 0 {
		return found, next, nil
	}
	each := max(r.Most/len(found), 1)
	found = found[:0]
	for _, group := range groups {
		more, err := b.firstOf(ctx, r, group, each)
		if err != nil {
			return nil, "", err
		}
		found = append(found, more...)
	}
	return found, "", nil
}

// groupAfter returns the next group that has a free task of one of the kinds. It returns the empty group, which has the
// tasks without a group, if there is no other.
func (b *base) groupAfter(ctx context.Context, kinds []string, group string) (next string, err error) {
	for _, kind := range kinds {
		prefix := turnRow + escaped(kind)
		for e, err := range b.kv.Scan(ctx, end(turnsOf(kind, group)), end(prefix)) {
			if err != nil {
				return "", err
			}
			if found, _ := unescaped(strings.TrimPrefix(e.Key, prefix)); next == "" || found < next {
				next = found
			}
			break
		}
	}
	return next, nil
}

// firstOf returns up to most candidates in the group, the earliest first.
func (b *base) firstOf(ctx context.Context, r engine.ClaimRequest, group string, most int) ([]candidate, error) {
	m := b.newMerge(ctx)
	for _, kind := range r.Kinds {
		prefix := freeOf(kind, false)
		if group != "" {
			prefix = turnsOf(kind, group)
		}
		from, to := between(prefix, b.least(span{kind: kind, group: group})-1, r.Until)
		m.add(from, to, len(prefix), most)
	}
	return b.some(r, m, most)
}
