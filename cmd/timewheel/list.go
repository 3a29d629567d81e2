// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable"
)

const aboutList = `
Without a search it lists the tasks that are due first. Tasks are in order of their due times, or of
their keys if -prefix or -failure is given. Keys that are not plain text are quoted as in Go, and
the commands accept them in the same form.

  timewheel ls -prefix order: -state retrying
  timewheel ls -all -json | jq -r .kind | sort | uniq -c`

func defineList(p *program, f *flag.FlagSet) action {
	var at place
	var q search
	var asJSON bool
	at.define(p, f)
	q.define(f, true, "all tasks, and not only a page of them")
	f.IntVar(&q.Limit, "limit", 50, "list at most `N` tasks")
	f.StringVar(&q.After, "after", "", "continue after the page that ended with `PLACE`")
	f.BoolVar(&asJSON, "json", false, "write JSON lines")
	return noArgs(func(ctx context.Context) error {
		if q.Limit < 1 {
			return usagef("-limit %d is not positive", q.Limit)
		}
		return at.with(ctx, p, false, func(ctx context.Context, s scheduler) error { return p.list(ctx, s, q, asJSON) })
	})
}

// list lists a page of tasks, or all tasks that match the search. It writes a table for each page, because the tasks
// might not all fit in memory.
func (p *program) list(ctx context.Context, s scheduler, q search, asJSON bool) error {
	left := q.Limit
	out := bufio.NewWriter(p.out)
	tasks := 0
	var page []durable.Info
	flush := func() error {
		if tasks == 0 || len(page) > 0 {
			if err := p.writeTasks(out, page, asJSON); err != nil {
				return err
			}
		}
		tasks += len(page)
		page = page[:0]
		return out.Flush()
	}
	for {
		q.Limit = mostTasks - len(page)
		if !q.all {
			q.Limit = min(q.Limit, left)
		}
		found, err := s.Find(ctx, q.Query)
		if err != nil {
			return errors.Join(err, flush())
		}
		page = append(page, found.Tasks...)
		left -= len(found.Tasks)
		q.After = found.Next
		whole := q.After == "" || !q.all && left <= 0
		if whole || len(page) >= mostTasks {
			if err := flush(); err != nil {
				return err
			}
		}
		if whole {
			break
		}
	}
	if q.After != "" {
		fmt.Fprintf(p.err, "There are more: -after %s continues, and -all lists all.\n", q.After)
	}
	return nil
}

// mostTasks is the greatest number of tasks in memory at once while tasks are being listed.
const mostTasks = 1000

func (p *program) writeTasks(out *bufio.Writer, page []durable.Info, asJSON bool) error {
	if asJSON {
		for _, i := range page {
			if err := writeJSON(out, infoJSON(i)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(page) == 0 {
		fmt.Fprintln(p.err, "No task matches.")
		return nil
	}
	t := table{columns: []column{
		{title: "KEY", least: 12}, {title: "KIND", least: 6}, {title: "STATE"}, {title: "NODE", least: 6}, {title: "NEXT"},
		{title: "LEFT", right: true}, {title: "FAILED", right: true}, {title: "ERROR", least: 8},
	}}
	held := slices.ContainsFunc(page, func(i durable.Info) bool { return i.Node != "" })
	for _, i := range page {
		node, failed, failure := "", "", ""
		if i.Node != "" {
			node = quoteText(i.Node)
		}
		if i.Attempts > 0 || i.GivenUp > 0 {
			failed, failure = number(i.Attempts), quoteText(i.Failure)
		}
		t.add(quoteText(i.Key), quoteText(i.Kind), p.state(i), node, p.nextRun(i), times(i.Times), failed, failure)
	}
	if !held { // the tasks of a store are never held by a node
		t.drop(3)
	}
	t.write(out, p.width)
	return nil
}

// state returns the state of a task and, if the task is running, how long it has been running.
func (p *program) state(i durable.Info) string {
	if i.Started.IsZero() {
		return i.State.String()
	}
	return fmt.Sprintf("%s for %s", i.State, span(max(p.now().Sub(i.Started), 0)))
}

func (p *program) nextRun(i durable.Info) string {
	if i.Next.IsZero() {
		return "-"
	}
	return p.when(i.Next)
}

// times formats the number of runs left.
func times(n int) string {
	if n == durable.Forever {
		return "forever"
	}
	return number(n)
}

const aboutShow = `
A payload is shown as text, or in hexadecimal, and cut after 4 KiB. With -payload only the payload
is written, unchanged.

  timewheel show order:42
  timewheel show -payload order:42 | jq .`

func defineShow(p *program, f *flag.FlagSet) action {
	var at place
	var asJSON, payload bool
	at.define(p, f)
	f.BoolVar(&asJSON, "json", false, "write JSON lines")
	f.BoolVar(&payload, "payload", false, "write the payload alone")
	return func(ctx context.Context, args []string) error {
		keys, err := someKeys(args, "which task? Give its key")
		if err != nil {
			return err
		}
		if payload && (asJSON || len(keys) > 1) {
			return usagef("-payload is for one task, and without -json")
		}
		return at.with(ctx, p, false, func(ctx context.Context, s scheduler) error {
			var missing []error // joined once: to join each with those before costs their square
			for n, key := range keys {
				i, ok, err := s.Get(ctx, key)
				switch {
				case ctx.Err() != nil: // a store would still answer
					return ctx.Err()
				case err != nil:
					return err
				case !ok:
					missing = append(missing, noTask(key))
				case payload:
					_, err = p.out.Write(i.Payload)
				case asJSON:
					err = writeJSON(p.out, infoJSON(i))
				default:
					if n > 0 {
						fmt.Fprintln(p.out)
					}
					p.showTask(i)
				}
				if err != nil {
					return err
				}
			}
			return errors.Join(missing...)
		})
	}
}

func noTask(key string) error {
	return fmt.Errorf("%w: %s", durable.ErrTaskKeyNotFound, quoteText(key))
}

func (p *program) showTask(i durable.Info) {
	now := p.now()
	line := func(name, format string, args ...any) {
		fmt.Fprintf(p.out, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("key", "%s", quoteText(i.Key))
	line("kind", "%s", quoteText(i.Kind))
	line("state", "%s", i.State)
	if !i.Started.IsZero() {
		line("started", "%s", when(i.Started, now))
	}
	if !i.Next.IsZero() {
		line("next", "%s", when(i.Next, now))
	}
	if i.Interval > 0 {
		line("interval", "%s", i.Interval)
	}
	if i.Cron != "" {
		line("cron", "%s", quoteText(i.Cron))
	}
	if i.Shift > 0 {
		line("later by", "%s, of its jitter", i.Shift)
	}
	if !i.Deadline.IsZero() {
		line("deadline", "%s", when(i.Deadline, now))
	}
	if !i.Until.IsZero() {
		line("until", "%s", when(i.Until, now))
	}
	if i.Expires > 0 {
		line("expires", "%s after it is due", i.Expires)
	}
	line("runs left", "%s", times(i.Times))
	if i.Snoozes > 0 {
		line("postponed", "%s", count(i.Snoozes, "time"))
	}
	if i.Missed > 0 {
		line("missed", "%s", count(int(i.Missed), "period"))
	}
	if i.Node != "" {
		line("node", "%s", quoteText(i.Node))
	}
	line("token", "%s", quoteText(i.Token.String()))
	if i.GivenUp > 0 {
		line("given up", "%s in a row", count(i.GivenUp, "run"))
	}
	if i.Attempts > 0 || i.GivenUp > 0 {
		line("failed", "%s; the last with: %s", count(i.Attempts, "attempt"), quoteText(i.Failure))
	}
	for _, f := range i.Failed {
		line("", "%s: %s", when(f.At, now), quoteText(f.Text))
	}
	if i.Note != "" {
		line("note", "%s", quoteText(i.Note))
	}
	if i.Group != "" {
		line("group", "%s", quoteText(i.Group))
	}
	if i.Trace != "" {
		line("trace", "%s", quoteText(i.Trace))
	}
	line("payload", "%s, version %d", count(len(i.Payload), "byte"), i.PayloadVersion)
	if len(i.Payload) > 0 {
		fmt.Fprintln(p.out, payloadText(i.Payload))
	}
}

// mostPayload is the maximum number of bytes shown of a payload.
const mostPayload = 4 << 10

// payloadText returns a payload for display: text unchanged, and anything else in hexadecimal.
func payloadText(payload []byte) string {
	shown := payload[:min(len(payload), mostPayload)]
	for n := 0; n < utf8.UTFMax && len(shown) < len(payload) && !utf8.Valid(shown) && len(shown) > 0; n++ {
		shown = shown[:len(shown)-1] // do not split a character
	}
	s := string(shown)
	control := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
	if !utf8.ValidString(s) || strings.ContainsFunc(s, control) {
		shown = payload[:min(len(payload), mostPayload)]
		s = hex.Dump(shown)
	}
	s = "  " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ")
	if left := len(payload) - len(shown); left > 0 {
		s += fmt.Sprintf("\n  … and %s more", count(left, "byte"))
	}
	return s
}
