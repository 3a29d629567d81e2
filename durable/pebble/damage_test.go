// SPDX-License-Identifier: MIT

package pebble_test

import (
	"bufio"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// The damage harness damages each file of a store in every way listed below, in several states of the store, and opens
// it. The result must be one of these:
//
//   - an error that wraps ErrCorrupt, of the open or of a read. Then everything that was read before is true. All tasks
//     are there after the undamaged bytes are put back, with everything else as the failed open left it;
//   - all tasks, and they are there again at the next open.
//
// The result is never a missing, extra or changed task, never a hang, and never the end of the process. To detect the
// last two, a separate process, a worker, does one case after another until one of them ends it.
//
// The tests do a sample of each kind of damage to each type of file: 2,000 cases, 100 with -short, or as many as fit
// into DURABLE_DAMAGE_FOR (such as 5m). DURABLE_DAMAGE=all does every case, which takes half an hour.
// DURABLE_DAMAGE_SEED is the seed of the random choices; the states also depend on the times of compactions.
// DURABLE_DAMAGE_ONLY is a regular expression that selects lines of the table, such as "killed.*flip.*MANIFEST".

func damageEverything() bool { return os.Getenv("DURABLE_DAMAGE") == "all" }

const (
	damageDeadline = 20 * time.Second
	damageSample   = 2000 // sampled bytes and lengths of a file, if it has more
)

// A state is the directory of a store at some moment, and the contents of the store.
type state struct {
	Name  string
	Files map[string][]byte
	Want  map[string]engine.Record
	Older map[string][][]byte // earlier contents of the files
}

// A damage is one case.
type damage struct {
	State   int
	Kind    string // flip, cut, missing, older or swap; or hang or die, which test the harness
	File    string
	At, Bit int    // the byte and bit of a flip, the length of a cut, the version
	Other   string // the file that File is swapped with
}

func (d damage) String() string {
	switch d.Kind {
	case "flip":
		return fmt.Sprintf("bit %d of byte %d of %s flipped", d.Bit, d.At, d.File)
	case "cut":
		return fmt.Sprintf("%s cut off after %d bytes", d.File, d.At)
	case "older":
		return fmt.Sprintf("%s replaced by version %d of it", d.File, d.At)
	case "swap":
		return fmt.Sprintf("%s swapped with %s", d.File, d.Other)
	}
	return d.Kind + " " + d.File
}

var digits = regexp.MustCompile(`[0-9]+`)

// fileType returns the name of a file without the part that distinguishes it from others of its type.
func fileType(name string) string {
	switch {
	case strings.HasPrefix(name, "marker."):
		return strings.Join(strings.SplitN(name, ".", 3)[:2], ".")
	case strings.HasSuffix(name, ".sst"):
		return "table"
	case strings.HasSuffix(name, ".log"):
		return "log"
	}
	return strings.TrimSuffix(digits.ReplaceAllString(name, ""), "-")
}

// group returns the group under which the case is counted.
func (d damage) group(states []state) string {
	what := fileType(d.File)
	if d.Kind == "swap" {
		what = strings.Join(slices.Sorted(slices.Values([]string{what, fileType(d.Other)})), "+")
	}
	return fmt.Sprintf("%-13s %-8s %s", states[d.State].Name, d.Kind, what)
}

// apply returns the files that the damage changes. A file that it removes is nil.
func (d damage) apply(s state) map[string][]byte {
	whole := s.Files[d.File]
	switch d.Kind {
	case "flip":
		data := slices.Clone(whole)
		data[d.At] ^= 1 << d.Bit
		return map[string][]byte{d.File: data}
	case "cut":
		return map[string][]byte{d.File: whole[:d.At:d.At]}
	case "missing":
		return map[string][]byte{d.File: nil}
	case "older":
		return map[string][]byte{d.File: s.Older[d.File][d.At]}
	case "swap":
		return map[string][]byte{d.File: s.Files[d.Other], d.Other: whole}
	}
	panic("no such damage: " + d.Kind)
}

// damages returns all cases.
func damages(states []state, rnd *rand.Rand) (all []damage) {
	for i, s := range states {
		names := slices.Sorted(maps.Keys(s.Files))
		for n, name := range names {
			whole := s.Files[name]
			for _, at := range someOf(len(whole), rnd) {
				all = append(all,
					damage{State: i, Kind: "flip", File: name, At: at, Bit: rnd.IntN(8)},
					damage{State: i, Kind: "cut", File: name, At: at})
			}
			all = append(all, damage{State: i, Kind: "missing", File: name})
			for v, old := range s.Older[name] {
				if string(old) != string(whole) {
					all = append(all, damage{State: i, Kind: "older", File: name, At: v})
				}
			}
			for _, other := range names[n+1:] {
				if string(whole) != string(s.Files[other]) {
					all = append(all, damage{State: i, Kind: "swap", File: name, Other: other})
				}
			}
		}
	}
	return all
}

// someOf returns the numbers below n, or a sample of them in order.
func someOf(n int, rnd *rand.Rand) []int {
	if n > damageSample {
		return slices.Sorted(slices.Values(rnd.Perm(n)[:damageSample]))
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// A verdict is the result of a case.
type verdict struct {
	Noticed string // "open", "later", or "" if the damage did no harm
	Fault   string // the violation, or ""
}

// A reader is an open store that can be read.
type reader interface {
	Due(after engine.Position, until int64) iter.Seq2[engine.Record, error]
	Keys() iter.Seq2[string, error]
	Get(key string) (r engine.Record, ok bool, err error)
	Len() int
	Close() error
}

// A trial is a damaged store.
type trial struct {
	open   func() (reader, error)
	repair func() // puts the undamaged bytes back
	want   map[string]engine.Record
}

// judge opens the store and reads everything.
func (t trial) judge() (v verdict) {
	fault := func(format string, args ...any) verdict {
		v.Fault = fmt.Sprintf(format, args...)
		return v
	}
	admitted := func(err error) bool {
		return errors.Is(err, engine.ErrCorrupt)
	}
	for _, noticed := range []string{"open", "later"} {
		s, err := t.open()
		if err != nil {
			if !admitted(err) {
				return fault("the open fails with another error: %v", err)
			}
			v.Noticed = noticed
			break
		}
		all, err := readTrue(s)
		closed := s.Close()
		for key, r := range all {
			if want, ok := t.want[key]; !ok || !sameRecord(r, want) {
				return fault("a record is read that is not true: %q at %d, %v; there were %d bytes at %d, %v",
					key, r.Due, err, len(want.Data), want.Due, ok)
			}
		}
		switch {
		case err != nil && !admitted(err):
			return fault("a read fails with another error: %v", err)
		case err == nil && len(all) != len(t.want):
			return fault("of %d records %d are there, and no error", len(t.want), len(all))
		case closed != nil && !admitted(closed):
			return fault("the close fails with another error: %v", closed)
		}
		if err != nil || closed != nil {
			v.Noticed = "later"
			break
		}
	}
	if v.Noticed == "" {
		return v
	}
	t.repair()
	s, err := t.open()
	if err != nil {
		return fault("repaired, it does not open: %v", err)
	}
	all, err := readTrue(s)
	if closed := s.Close(); err == nil {
		err = closed
	}
	if err != nil || !maps.EqualFunc(all, t.want, sameRecord) {
		return fault("repaired, of %d records %d are there, %v", len(t.want), len(all), err)
	}
	return v
}

// readTrue reads everything in every possible way. The error comes from the store, or names answers that contradict
// each other.
func readTrue(s reader) (map[string]engine.Record, error) {
	all := map[string]engine.Record{}
	for r, err := range s.Due(engine.Position{Due: engine.None}, math.MaxInt64) {
		if err != nil {
			return all, err
		}
		if _, twice := all[r.Key]; twice {
			return all, fmt.Errorf("%q is there twice", r.Key)
		}
		all[r.Key] = r
	}
	keys := 0
	for key, err := range s.Keys() {
		if err != nil {
			return all, err
		}
		keys++
		r, ok, err := s.Get(key)
		if err != nil {
			return all, err
		}
		if there, found := all[key]; !ok || !found || !sameRecord(r, there) {
			return all, fmt.Errorf("of the key %q there are %v and %v", key, r, there)
		}
	}
	if keys != len(all) || s.Len() != keys {
		return all, fmt.Errorf("there are %d keys, %d records, and Len is %d", keys, len(all), s.Len())
	}
	return all, nil
}

// trialOf returns the store of a state with a damage, and its files.
func trialOf(t testing.TB, s state, d damage) (trial, vfs.FS) {
	files := memOf(t, s.Files)
	put := func(changed map[string][]byte) {
		for name, data := range changed {
			if data == nil { // missing, unlike an empty file
				if err := files.Remove("store/" + name); err != nil {
					t.Fatal(err)
				}
				continue
			}
			putFile(t, files, name, data)
		}
	}
	damaged := d.apply(s)
	put(damaged)
	return trial{
		open: func() (reader, error) { return openOn(files) },
		want: s.Want,
		repair: func() {
			whole := map[string][]byte{}
			for name := range damaged {
				whole[name] = s.Files[name]
			}
			put(whole)
		},
	}, files
}

func memOf(t testing.TB, files map[string][]byte) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll("store", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		putFile(t, mem, name, data)
	}
	return mem
}

func putFile(t testing.TB, files vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := files.Create("store/"+name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(slices.Clone(data))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// filesOf returns the bytes of all files of the store.
func filesOf(t testing.TB, files vfs.FS) map[string][]byte {
	t.Helper()
	names, err := files.List("store")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		all[name] = bytesOf(t, files, name)
	}
	return all
}

// makeStates lets a store live through several processes, and returns its states.
func makeStates(t testing.TB, seed uint64) (states []state) {
	t.Helper()
	h := newHistory(seed)
	older := map[string][][]byte{}
	mem := memOf(t, nil)
	files := map[string][]byte{}
	// look records the directory as it would be after a kill.
	look := func() {
		for name, data := range files {
			if n := len(older[name]); n == 0 || string(older[name][n-1]) != string(data) {
				older[name] = append(older[name], data)
			}
		}
		files = filesOf(t, killed(t, mem, h.rnd))
	}
	keep := func(name string) {
		look()
		had := map[string][][]byte{}
		for name := range files {
			had[name] = slices.Clone(older[name])
		}
		states = append(states, state{name, files, h.states[len(h.states)-1], had})
	}
	commit := func(s *subject, n, step int) {
		for range n / step {
			must(t, h.commit(s, step))
			look()
		}
	}
	open := func() *subject {
		s, err := openOn(mem)
		must(t, err)
		for _, err := range s.Keys() { // the store deletes nothing before this walk
			must(t, err)
		}
		look()
		return s
	}
	kill := func(s *subject) *subject {
		look()
		mem = memOf(t, files)
		must(t, s.Close()) // of the dead process: no other process sees its writes
		return open()
	}

	s := open()
	commit(s, 12, 3)
	keep("fresh")
	commit(s, 60, 10)
	s = kill(s)
	commit(s, 1, 1)
	keep("killed twice")
	tables := map[string]bool{}
	compacted := false
	for i := 0; !compacted && i < 100; i++ { // until an existing table is gone
		commit(s, 30, 15)
		for name := range files {
			if strings.HasSuffix(name, ".sst") {
				tables[name] = true
			}
		}
		for name := range tables {
			compacted = compacted || files[name] == nil
		}
	}
	if !compacted {
		t.Fatal("nothing was compacted")
	}
	commit(s, 5, 5)
	keep("compacted")
	now := maps.Clone(h.states[len(h.states)-1])
	var removed []change
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if len(removed) == 0 || h.rnd.IntN(10) > 0 {
			removed = append(removed, change{Key: key, From: now[key].Due, Due: engine.None})
			delete(now, key)
		}
	}
	must(t, s.Commit(removed))
	h.states = append(h.states, now)
	keep("removed")
	commit(s, 2, 1)
	must(t, s.Close())
	keep("closed")
	return states
}

// interleave shuffles the cases of each group and returns the groups in turn, so that any prefix has about as many
// cases of each group.
func interleave(all []damage, states []state, rnd *rand.Rand) []damage {
	groups := map[string][]damage{}
	for _, d := range all {
		g := d.group(states)
		groups[g] = append(groups[g], d)
	}
	names := slices.Sorted(maps.Keys(groups))
	for _, g := range names {
		rnd.Shuffle(len(groups[g]), func(i, j int) { groups[g][i], groups[g][j] = groups[g][j], groups[g][i] })
	}
	mixed := make([]damage, 0, len(all))
	for round := 0; len(mixed) < len(all); round++ {
		for _, g := range names {
			if round < len(groups[g]) {
				mixed = append(mixed, groups[g][round])
			}
		}
	}
	return mixed
}

// A plan is the input of the workers, in a file.
type plan struct {
	States []state
	Cases  []damage
}

func (p plan) write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(file).Encode(p), file.Close())
}

func readPlan(path string) (p plan, err error) {
	file, err := os.Open(path)
	if err != nil {
		return p, err
	}
	err = errors.Join(gob.NewDecoder(file).Decode(&p), file.Close())
	for _, s := range p.States { // gob does not distinguish an empty file from a missing one
		for name, data := range s.Files {
			s.Files[name] = append([]byte{}, data...)
		}
		for _, versions := range s.Older {
			for i, data := range versions {
				versions[i] = append([]byte{}, data...)
			}
		}
	}
	return p, err
}

// A worker is a process that does cases.
type worker struct {
	path     string
	deadline time.Duration
	process  *exec.Cmd
	in       io.WriteCloser
	answers  chan verdict
	stderr   *tail
}

// tail keeps the beginning of the text written to it, where a panic gives its reason.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.b) < 600 {
		t.b = append(t.b, b[:min(len(b), 600)]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(string(t.b), "\n", " | ")
}

func (w *worker) start() error {
	w.process = exec.Command(os.Args[0], "-test.run=^TestDamage_worker$", "-test.timeout=0")
	w.process.Env = append(os.Environ(), "DURABLE_DAMAGE_PLAN="+w.path, "GOMAXPROCS=2")
	w.stderr = &tail{}
	w.process.Stderr = w.stderr
	in, err := w.process.StdinPipe()
	if err != nil {
		return err
	}
	out, err := w.process.StdoutPipe()
	if err != nil {
		return err
	}
	w.in, w.answers = in, make(chan verdict)
	answers := w.answers
	go func() {
		defer close(answers)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var v verdict
			if json.Unmarshal(lines.Bytes(), &v) == nil {
				answers <- v
			}
		}
	}()
	return w.process.Start()
}

// do returns the result of a case.
func (w *worker) do(number int) (verdict, error) {
	if w.process == nil {
		if err := w.start(); err != nil {
			return verdict{}, err
		}
	}
	_, _ = fmt.Fprintln(w.in, number) // fails if the process has ended, which is noticed next
	select {
	case v, ok := <-w.answers:
		if ok {
			return v, nil
		}
		w.stop()
		return verdict{Fault: fmt.Sprintf("the process ends: %v", w.stderr)}, nil
	case <-time.After(w.deadline):
		w.kill()
		return verdict{Fault: fmt.Sprintf("it hangs for %v", w.deadline)}, nil
	}
}

func (w *worker) kill() {
	_ = w.process.Process.Kill()
	w.stop()
}

// stop asks the process to end.
func (w *worker) stop() {
	if w.process == nil {
		return
	}
	_ = w.in.Close()
	for range w.answers {
	}
	_ = w.process.Wait()
	w.process = nil
}

// TestDamage_worker is the process that does the cases whose numbers it reads.
func TestDamage_worker(t *testing.T) {
	path := os.Getenv("DURABLE_DAMAGE_PLAN")
	if path == "" {
		t.Skip("it is a process of TestDamage")
	}
	p, err := readPlan(path)
	if err != nil {
		t.Fatal(err)
	}
	numbers := bufio.NewScanner(os.Stdin)
	for numbers.Scan() {
		n, err := strconv.Atoi(numbers.Text())
		if err != nil {
			t.Fatal(err)
		}
		d := p.Cases[n]
		var v verdict
		switch d.Kind {
		case "hang":
			select {}
		case "die":
			go func() { panic("it dies") }()
			select {}
		default:
			damaged, _ := trialOf(t, p.States[d.State], d)
			v = damaged.judge()
		}
		answer, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s\n", answer)
	}
}

// runCases does the cases in as many processes as there are processors, and calls done with each verdict, one
// at a time. It ends when until is closed, or all are done.
func runCases(t *testing.T, p plan, deadline time.Duration, until <-chan time.Time, done func(damage, verdict)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plan")
	if err := p.write(path); err != nil {
		t.Fatal(err)
	}
	numbers := make(chan int)
	go func() {
		defer close(numbers)
		for i := range p.Cases {
			select {
			case numbers <- i:
			case <-until:
				return
			}
		}
	}()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			w := &worker{path: path, deadline: deadline}
			defer w.stop()
			for n := range numbers {
				v, err := w.do(n)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				done(p.Cases[n], v)
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

func TestDamage_ofEachFile_isNoticedOrHarmless(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("DURABLE_DAMAGE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("DURABLE_DAMAGE_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 13))
	states := makeStates(t, seed)
	for _, s := range states {
		size := 0
		for _, data := range s.Files {
			size += len(data)
		}
		t.Logf("%s: %d records, %d bytes in %v", s.Name, len(s.Want), size, slices.Sorted(maps.Keys(s.Files)))
	}
	only, err := regexp.Compile(os.Getenv("DURABLE_DAMAGE_ONLY"))
	if err != nil {
		t.Fatal(err)
	}
	cases := slices.DeleteFunc(damages(states, rnd), func(d damage) bool { return !only.MatchString(d.group(states)) })
	p := plan{states, interleave(cases, states, rnd)}
	var until <-chan time.Time
	switch text := os.Getenv("DURABLE_DAMAGE_FOR"); {
	case damageEverything():
	case text != "":
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		until = time.After(d)
	case testing.Short():
		p.Cases = p.Cases[:min(100, len(p.Cases))]
	default:
		p.Cases = p.Cases[:min(2000, len(p.Cases))]
	}

	type count struct {
		cases, open, later, harmless, faults int
		examples                             []string
	}
	counts, faults := map[string]*count{}, map[string]int{}
	sum := count{}
	runCases(t, p, damageDeadline, until, func(d damage, v verdict) {
		c := counts[d.group(states)]
		if c == nil {
			c = &count{}
			counts[d.group(states)] = c
		}
		for _, c := range []*count{c, &sum} {
			c.cases++
			switch {
			case v.Fault != "":
				c.faults++
			case v.Noticed == "open":
				c.open++
			case v.Noticed == "later":
				c.later++
			default:
				c.harmless++
			}
		}
		if v.Fault != "" {
			what, _, _ := strings.Cut(v.Fault, ":")
			faults[digits.ReplaceAllString(what, "N")]++
		}
		if sum.cases%10_000 == 0 {
			t.Logf("%d of %d cases are done, with %d faults", sum.cases, len(p.Cases), sum.faults)
		}
		if v.Fault != "" && len(c.examples) < 3 {
			c.examples = append(c.examples, fmt.Sprintf("%s: %v: %s", states[d.State].Name, d, v.Fault))
		}
	})
	var table strings.Builder
	line := func(name string, c count) {
		fmt.Fprintf(&table, "%-50s %7d %7d %7d %8d %7d\n", name, c.cases, c.open, c.later, c.harmless, c.faults)
	}
	fmt.Fprintf(&table, "%-50s %7s %7s %7s %8s %7s\n", "state, damage, file", "cases", "at open", "later", "harmless", "FAULTS")
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		line(name, *counts[name])
	}
	line("all", sum)
	for _, what := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(&table, "%7d faults: %s\n", faults[what], what)
	}
	t.Logf("of %d cases:\n%s", len(cases), table.String())
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		for _, example := range counts[name].examples {
			t.Error(example)
		}
	}
	if sum.cases == 0 || until == nil && sum.cases < len(p.Cases) {
		t.Errorf("only %d of %d cases were done", sum.cases, len(p.Cases))
	}
}

// A lyingStore is a store with some wrong answers.
type lyingStore struct {
	*subject
	hide   string                            // a key that is in no answer
	alter  func(engine.Record) engine.Record // how the walk over the due times changes a record
	fail   error                             // how that walk ends
	closed error
}

func (s *lyingStore) Len() int {
	if s.hide != "" {
		return s.subject.Len() - 1
	}
	return s.subject.Len()
}

func (s *lyingStore) Due(after engine.Position, until int64) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		for r, err := range s.subject.Due(after, until) {
			if err == nil && r.Key == s.hide {
				continue
			}
			if err == nil && s.alter != nil {
				r = s.alter(r)
			}
			if !yield(r, err) {
				return
			}
		}
		if s.fail != nil {
			yield(engine.Record{}, s.fail)
		}
	}
}

func (s *lyingStore) Keys() iter.Seq2[string, error] {
	keys := s.subject.Keys()
	return func(yield func(string, error) bool) {
		for key, err := range keys {
			if (err != nil || key != s.hide) && !yield(key, err) {
				return
			}
		}
	}
}

func (s *lyingStore) Close() error { return errors.Join(s.subject.Close(), s.closed) }

// The judge of the harness detects every violation.
func TestDamage_judge_refusesWhatMustNotBe(t *testing.T) {
	h := newHistory(31)
	whole := memOf(t, nil)
	s, err := openOn(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.commit(s, 20), s.Close()); err != nil {
		t.Fatal(err)
	}
	want := h.states[20]
	one := slices.Sorted(maps.Keys(want))[0]
	open := func(lie lyingStore) func() (reader, error) {
		return func() (reader, error) {
			s, err := openOn(whole)
			lie := lie
			lie.subject = s
			return &lie, err
		}
	}
	honest := open(lyingStore{})
	refuses := func(err error) func() (reader, error) {
		return func() (reader, error) { return nil, err }
	}
	corrupt := fmt.Errorf("a block: %w", engine.ErrCorrupt)
	otherData := func(r engine.Record) engine.Record {
		if r.Key == one {
			r.Data = append(r.Data, 'x')
		}
		return r
	}
	otherDue := func(r engine.Record) engine.Record {
		if r.Key == one {
			r.Due++
		}
		return r
	}
	fewer := maps.Clone(want)
	delete(fewer, one)
	type opens []func() (reader, error) // the first, the second and so on
	for what, c := range map[string]struct {
		opens   opens
		want    map[string]engine.Record
		noticed string
		fault   string
	}{
		"all is well":                    {opens: opens{honest, honest}},
		"one is hidden":                  {opens: opens{open(lyingStore{hide: one})}, fault: "are there, and no error"},
		"one is hidden at the next open": {opens: opens{honest, open(lyingStore{hide: one})}, fault: "are there, and no error"},
		"one is too many":                {opens: opens{honest}, want: fewer, fault: "not true"},
		"other data":                     {opens: opens{open(lyingStore{alter: otherData})}, fault: "not true"},
		"another due time":               {opens: opens{open(lyingStore{alter: otherDue})}, fault: "not true"},
		"other data before an error":     {opens: opens{open(lyingStore{alter: otherData, fail: corrupt}), honest}, fault: "not true"},
		"a read says it is corrupt":      {opens: opens{open(lyingStore{fail: corrupt}), honest}, noticed: "later"},
		"a read fails":                   {opens: opens{open(lyingStore{fail: syscall.EIO}), honest}, fault: "a read fails with another"},
		"the close fails":                {opens: opens{open(lyingStore{closed: syscall.EIO}), honest}, fault: "the close fails"},
		"the close says it is corrupt":   {opens: opens{open(lyingStore{closed: corrupt}), honest}, noticed: "later"},
		"the open says it is corrupt":    {opens: opens{refuses(corrupt), honest}, noticed: "open"},
		"the next open says so":          {opens: opens{honest, refuses(corrupt), honest}, noticed: "later"},
		"the open fails":                 {opens: opens{refuses(syscall.EIO), honest}, fault: "the open fails with another"},
		"another version":                {opens: opens{refuses(engine.ErrVersion), honest}, fault: "the open fails with another"},
		"repaired, it does not open":     {opens: opens{refuses(corrupt), refuses(corrupt)}, fault: "does not open"},
		"repaired, one is hidden":        {opens: opens{refuses(corrupt), open(lyingStore{hide: one})}, fault: "repaired, of"},
		"repaired, a read fails":         {opens: opens{refuses(corrupt), open(lyingStore{fail: corrupt})}, fault: "repaired, of"},
	} {
		if c.want == nil {
			c.want = want
		}
		opened, repaired := 0, 0
		v := trial{
			open:   func() (reader, error) { opened++; return c.opens[opened-1]() },
			repair: func() { repaired++ },
			want:   c.want,
		}.judge()
		if (v.Fault != "") != (c.fault != "") || !regexp.MustCompile(c.fault).MatchString(v.Fault) || v.Fault == "" && v.Noticed != c.noticed {
			t.Errorf("%s: the verdict is %+v", what, v)
		}
		if v.Fault == "" && (opened != len(c.opens) || (repaired > 0) != (c.noticed != "")) {
			t.Errorf("%s: it is opened %d times and repaired %d times", what, opened, repaired)
		}
	}
}

// A case that hangs, or ends its process, is a fault, and the cases after it are still done.
func TestDamage_worker_hangsAndDies(t *testing.T) {
	s := state{Name: "new", Files: map[string][]byte{"LOCK": {}}}
	p := plan{States: []state{s}}
	for _, kind := range []string{"missing", "hang", "missing", "die", "missing", "hang", "die", "missing"} {
		p.Cases = append(p.Cases, damage{Kind: kind, File: "LOCK"})
	}
	faults := map[string]string{}
	done := 0
	runCases(t, p, 3*time.Second, nil, func(d damage, v verdict) {
		faults[d.Kind] += v.Fault
		done++
	})
	if done != len(p.Cases) || faults["missing"] != "" || !strings.Contains(faults["hang"], "hangs") ||
		!strings.Contains(faults["die"], "it dies") {
		t.Errorf("%d of %d cases are done, with %q", done, len(p.Cases), faults)
	}
}

// A store that is repaired has the same bytes as before the damage, in empty files too.
func TestDamage_repair_putsBackWhatThereWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan")
	whole := map[string][]byte{"full": []byte("bytes"), "empty": {}, "other": []byte("x")}
	s := state{Files: whole, Older: map[string][][]byte{"full": {{}, []byte("b")}}}
	if err := (plan{States: []state{s}}).write(path); err != nil {
		t.Fatal(err)
	}
	p, err := readPlan(path)
	if err != nil {
		t.Fatal(err)
	}
	s = p.States[0]
	for d, want := range map[damage]map[string]string{
		{Kind: "missing", File: "empty"}:              {"full": "bytes", "other": "x"},
		{Kind: "missing", File: "full"}:               {"empty": "", "other": "x"},
		{Kind: "cut", File: "full"}:                   {"full": "", "empty": "", "other": "x"},
		{Kind: "cut", File: "full", At: 2}:            {"full": "by", "empty": "", "other": "x"},
		{Kind: "older", File: "full"}:                 {"full": "", "empty": "", "other": "x"},
		{Kind: "older", File: "full", At: 1}:          {"full": "b", "empty": "", "other": "x"},
		{Kind: "flip", File: "full", At: 4, Bit: 1}:   {"full": "byteq", "empty": "", "other": "x"},
		{Kind: "swap", File: "empty", Other: "full"}:  {"full": "", "empty": "bytes", "other": "x"},
		{Kind: "swap", File: "other", Other: "empty"}: {"full": "bytes", "empty": "x", "other": ""},
	} {
		trial, files := trialOf(t, s, d)
		if got := textOf(t, files); !maps.Equal(got, want) {
			t.Errorf("%v leaves %q, want %q", d, got, want)
		}
		trial.repair()
		if got := textOf(t, files); !maps.Equal(got, map[string]string{"full": "bytes", "empty": "", "other": "x"}) {
			t.Errorf("%v is repaired to %q", d, got)
		}
	}
}

func textOf(t testing.TB, files vfs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, data := range filesOf(t, files) {
		all[name] = string(data)
	}
	return all
}

// Every damage changes the bytes that it names, and there is each kind of damage for each type of file.
func TestDamage_cases_areThere(t *testing.T) {
	if testing.Short() {
		t.Skip("it lets a store live through several processes")
	}
	states := makeStates(t, 1)
	rnd := rand.New(rand.NewPCG(1, 1))
	all := damages(states, rnd)
	groups := map[string]int{}
	for _, d := range all {
		groups[d.group(states)]++
		changed := false
		for name, data := range d.apply(states[d.State]) {
			whole := states[d.State].Files[name]
			changed = changed || data == nil || string(data) != string(whole)
		}
		if !changed {
			t.Errorf("%v of %s changes nothing", d, states[d.State].Name)
		}
	}
	for _, s := range states {
		for _, kind := range []string{"flip", "cut", "missing"} {
			for _, what := range []string{"log", "MANIFEST", "OPTIONS", "FORMAT", "COMMITTED"} {
				if groups[fmt.Sprintf("%-13s %-8s %s", s.Name, kind, what)] == 0 {
					t.Errorf("%s: no %s of %s", s.Name, kind, what)
				}
			}
		}
	}
	for _, g := range []string{"compacted     flip     table", "killed twice  missing  marker.manifest",
		"closed        swap     log+table", "compacted     older    MANIFEST", "compacted     older    log"} {
		if groups[g] == 0 {
			t.Errorf("there is no %s", g)
		}
	}
	if mixed := interleave(all, states, rnd); len(mixed) != len(all) {
		t.Errorf("of %d cases %d are left", len(all), len(mixed))
	}
}

// A process is killed when Pebble relies on a table that the inventory does not yet list. The table may be damaged and
// is repaired like any other.
func TestDamage_ofATableNotYetListed_isNoticedOrHarmless(t *testing.T) {
	h := newHistory(5)
	mem := memOf(t, nil)
	s, err := openUnverified(mem) // nothing is deleted that the earlier inventory lists
	if err != nil {
		t.Fatal(err)
	}
	table := func(name string) bool { return fileType(name) == "table" }
	var listed []byte
	files := filesOf(t, killed(t, mem, h.rnd))
	for !slices.ContainsFunc(slices.Collect(maps.Keys(files)), table) {
		listed = files["INVENTORY"]
		if err := h.commit(s, 10); err != nil {
			t.Fatal(err)
		}
		files = filesOf(t, killed(t, mem, h.rnd))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files = filesOf(t, mem)
	files["INVENTORY"] = listed
	wantOpened(t, memOf(t, files), h, h.made.Load())
	opens := map[string]int{}
	second := errorfs.InjectorFunc(func(op errorfs.Op) error { // the first one reads the end, the second one all blocks
		if op.Kind == errorfs.OpOpen && strings.HasSuffix(op.Path, ".sst") {
			if opens[op.Path]++; opens[op.Path] == 2 {
				return syscall.EMFILE
			}
		}
		return nil
	})
	if _, err := openOn(errorfs.Wrap(memOf(t, files), second)); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("a table that cannot be read is not listed: %v", err)
	}
	dead := state{Name: "not listed", Files: files, Want: h.states[len(h.states)-1]}
	noticed := 0
	for _, d := range damages([]state{dead}, h.rnd) {
		if !table(d.File) || d.Kind == "swap" || d.Kind != "missing" && d.At%97 != 0 {
			continue
		}
		damaged, _ := trialOf(t, dead, d)
		v := damaged.judge()
		if v.Fault != "" {
			t.Errorf("%v: %s", d, v.Fault)
		}
		if v.Noticed != "" {
			noticed++
		}
	}
	if noticed == 0 {
		t.Error("no damage was noticed")
	}
}
