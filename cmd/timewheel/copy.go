// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
)

// lastDue is the due time of parked tasks, which come last in due order.
const lastDue int64 = math.MaxInt64

// A lineJSON is a task in an export. Payload and Record contain everything that the store or engine holds for the task.
// The other fields show the same contents in a form for people and filters.
type lineJSON struct {
	taskJSON
	Due    int64  `json:"due"`    // in nanoseconds since 1970; 9223372036854775807 if the task is parked
	Record []byte `json:"record"` // the part of the stored data before the payload, in base64
}

// newLine returns the line for a record.
func newLine(r engine.Record) (lineJSON, error) {
	info, err := durable.InfoOf(r)
	if err != nil {
		return lineJSON{}, err
	}
	head, ok := bytes.CutSuffix(r.Data, info.Payload)
	if !ok {
		return lineJSON{}, fmt.Errorf("%w: the record of %q does not end with its payload", durable.ErrVersion, r.Key)
	}
	return lineJSON{recordJSON(info), r.Due, head}, nil
}

// parseLine returns the record that a line contains.
func parseLine(b []byte) (engine.Record, error) {
	var l lineJSON
	if err := json.Unmarshal(b, &l); err != nil {
		return engine.Record{}, err
	}
	if l.Record == nil {
		return engine.Record{}, errors.New(`it has no field "record", and does not come from an export`)
	}
	r := engine.Record{Key: string(l.Key), Due: l.Due, Data: slices.Concat(l.Record, l.Payload)}
	is, err := newLine(r)
	if err != nil {
		return engine.Record{}, err
	}
	if name := differs(l.taskJSON, is.taskJSON); name != "" {
		return engine.Record{}, fmt.Errorf("its field %q differs from the record", name)
	}
	return r, nil
}

// differs returns the name of the first field in which two tasks differ, or "" if they are equal.
func differs(a, b taskJSON) string {
	if a.Next.Equal(b.Next) {
		a.Next = b.Next
	}
	if a.Deadline.Equal(b.Deadline) {
		a.Deadline = b.Deadline
	}
	if bytes.Equal(a.Payload, b.Payload) {
		a.Payload = b.Payload
	}
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			name, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

const aboutExport = `
It writes to the standard output, or to FILE, which must not be there. A line is one task, with all
that is kept of it: payload, due time, runs left, failed attempts with their error, missed periods,
token, and whether it is parked. Not kept is which node of a cluster holds a task, and that it is
running: the run comes again. Nor are the kinds that pause-kind has paused.

Of a store it is the state of one instant. A cluster may change meanwhile: a task that is added,
moved or removed during the export may be in it or not, or twice.

  timewheel export -dir /var/lib/shop/tasks | gzip > tasks.jsonl.gz`

func defineExport(p *program, f *flag.FlagSet) action {
	var at place
	at.defineStored(p, f)
	return func(ctx context.Context, args []string) error {
		name, err := oneFile(args)
		if err != nil {
			return err
		}
		n := 0
		err = at.records(ctx, p, func(ctx context.Context, all iter.Seq2[engine.Record, error], length int) error {
			err := p.create(name, func(to io.Writer) (err error) {
				n, err = export(ctx, to, all, p.progress("Exported", "task"))
				return err
			})
			if err == nil && length >= 0 && n != length {
				err = fmt.Errorf("%w: the store has %s, and %s were read", durable.ErrCorrupt,
					count(length, "task"), number(n))
			}
			return err
		})
		if err == nil {
			fmt.Fprintf(p.err, "Exported %s.\n", count(n, "task"))
		}
		return err
	}
}

func export(ctx context.Context, to io.Writer, all iter.Seq2[engine.Record, error], so func(n int)) (n int, err error) {
	for r, err := range all {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return n, err
		}
		l, err := newLine(r)
		if err == nil {
			err = writeJSON(to, l)
		}
		if err != nil {
			return n, err
		}
		n++
		so(n)
	}
	return n, nil
}

// create calls write with a new file, or with standard output if the name is "-". If create returns nil, the file is
// complete and on disk. If it returns an error, it leaves no file behind.
func (p *program) create(name string, write func(to io.Writer) error) error {
	if name == "-" {
		out := bufio.NewWriterSize(p.out, 1<<16)
		return errors.Join(write(out), out.Flush())
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(file, 1<<16)
	err = write(out)
	if err == nil {
		err = errors.Join(out.Flush(), file.Sync())
	}
	if err = errors.Join(err, file.Close()); err != nil {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

const aboutImport = `
It reads what export has written from the standard input or from FILE, and adds each task as it was,
with its failed attempts and its token. A parked task stays parked. A task that is due runs as soon
as a process has a handler for it. With -dir it makes the directory if it is not there.

A task whose key is taken is skipped, or with -replace takes the place of the other. To run the same
import again does what is left: all lines before one with an error are imported.

  gunzip < tasks.jsonl.gz | timewheel import -db postgres://shop@db/shop
  jq -c 'select(.kind == "mail")' tasks.jsonl | timewheel import -dir /var/lib/shop/mails`

func defineImport(p *program, f *flag.FlagSet) action {
	var at place
	var i importer
	at.defineStored(p, f)
	f.BoolVar(&i.replace, "replace", false, "replace tasks whose keys are in use, instead of skipping the lines")
	return func(ctx context.Context, args []string) error {
		name, err := oneFile(args)
		if err != nil {
			return err
		}
		from := p.in
		if name != "-" {
			file, err := os.Open(name)
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			from = file
		}
		err = at.with(ctx, p, true, func(ctx context.Context, s scheduler) error {
			i.s, i.so = s, p.progress("Read", "line")
			return i.read(ctx, from)
		})
		fmt.Fprintf(p.err, "Imported %s", count(i.added, "task"))
		if i.replace {
			fmt.Fprintf(p.err, ", of which %s replaced another", number(i.replaced))
		} else if i.skipped > 0 {
			fmt.Fprintf(p.err, ", skipped %s whose key was taken", number(i.skipped))
		}
		fmt.Fprintln(p.err, ".")
		return err
	}
}

// An importer adds tasks in batches.
type importer struct {
	s       scheduler
	replace bool
	so      func(line int) // reports progress

	batch       []engine.Record
	keys        map[string]int // the index in the batch for each key
	size        int
	first, line int // number of the first line in the batch, and of the last line read

	added, replaced, skipped int
}

const (
	// mostLine is greater than the length of the longest line in an export, which has a payload and a record in base64.
	mostLine = 4 << 20

	// These constants limit a batch, whose tasks are added together.
	batchTasks = 1000
	batchBytes = 4 << 20
)

func (i *importer) read(ctx context.Context, from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 1<<16), mostLine)
	for lines.Scan() {
		i.line++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		r, err := parseLine(lines.Bytes())
		if err != nil {
			return errors.Join(i.flush(ctx), fmt.Errorf("line %d: %w", i.line, err))
		}
		if err := i.put(ctx, r); err != nil {
			return err
		}
		i.so(i.line)
	}
	err := i.flush(ctx)
	if bad := lines.Err(); bad != nil {
		err = errors.Join(err, fmt.Errorf("line %d: %w", i.line+1, bad))
	}
	return err
}

// put adds a record to the batch. If several records have the same key, the batch retains the first one, or the last
// one with -replace.
func (i *importer) put(ctx context.Context, r engine.Record) error {
	if at, ok := i.keys[r.Key]; ok {
		if !i.replace {
			i.skipped++
			return nil
		}
		i.batch[at] = r
		i.replaced++
		return nil
	}
	if len(i.batch) == 0 {
		i.first, i.keys, i.size = i.line, make(map[string]int), 0
	}
	i.keys[r.Key] = len(i.batch)
	i.batch = append(i.batch, r)
	if i.size += len(r.Key) + len(r.Data); len(i.batch) < batchTasks && i.size < batchBytes {
		return nil
	}
	return i.flush(ctx)
}

// flush adds the tasks in the batch.
func (i *importer) flush(ctx context.Context) error {
	for len(i.batch) > 0 {
		err := i.s.Restore(ctx, i.batch...)
		var taken *durable.DuplicateKeysError
		switch {
		case err == nil:
			i.added += len(i.batch)
			i.batch = i.batch[:0]
		case !errors.As(err, &taken):
			return fmt.Errorf("lines %d to %d: %w", i.first, i.line, err)
		case i.replace:
			for _, key := range taken.Keys {
				err := i.s.RemoveTask(ctx, key)
				if err != nil && !errors.Is(err, durable.ErrTaskKeyNotFound) {
					return fmt.Errorf("lines %d to %d: %w", i.first, i.line, err)
				}
			}
			i.replaced += len(taken.Keys)
		default:
			i.skipped += len(taken.Keys)
			for _, key := range taken.Keys {
				delete(i.keys, key)
			}
			i.batch = slices.DeleteFunc(i.batch, func(r engine.Record) bool {
				_, ok := i.keys[r.Key]
				return !ok
			})
		}
	}
	i.keys = nil
	return nil
}
