// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A fleet is a number of processes with a dedicated server, connected through a proxy.
type fleet struct {
	t        *testing.T
	server   *pgtest.Server
	proxy    *pgtest.Proxy
	url      string // of the server through the proxy, or of several servers
	dir      string // of the ledgers
	clocks   string // the directory of the clocks that can stand still
	sabotage string
	programs []program // programs for the processes

	nodes    []*node
	started  int
	version  int // of the program for new processes
	faults   map[string]int
	restarts []int64 // when the server was restarted, or replaced
	clock    clock
	own      []event // the resumptions by quiet, and the stops of processes
}

// A program is the test program, or one whose clock is wrong.
type program struct {
	clock    string // how the clock is wrong, or empty
	path     string
	suspends bool // its clocks can stand still
}

// A node is a process.
type node struct {
	name string
	cmd  *osexec.Cmd
	in   io.WriteCloser
	out  *bytes.Buffer

	suspended *testkit.Suspended // or nil, if its clocks cannot stand still
}

func newFleet(t *testing.T, sabotage string) *fleet {
	t.Helper()
	s, err := start()
	check(t, err)
	f := &fleet{
		t: t, server: s, dir: t.TempDir(), clocks: t.TempDir(), sabotage: sabotage, programs: []program{{path: os.Args[0]}}, version: 1,
		faults: make(map[string]int),
	}
	t.Cleanup(func() {
		for _, n := range f.nodes {
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait()
		}
		check(t, s.Close())
	})
	f.proxy = newProxy(t, s)
	f.url = f.proxy.URL()
	f.ask(func(conn *pgx.Conn) {
		exec(t, conn, "CREATE TABLE effects (key text)")
		check(t, postgres.Migrate(t.Context(), conn, postgres.WithSchema("chaos")))
	})
	return f
}

// ask calls the function with a connection to the current server.
func (f *fleet) ask(do func(conn *pgx.Conn)) {
	f.t.Helper()
	conn, err := pgx.Connect(f.t.Context(), f.server.URL())
	check(f.t, err)
	defer func() { _ = conn.Close(f.t.Context()) }()
	do(conn)
}

// start starts a process.
func (f *fleet) start() {
	f.t.Helper()
	f.started++
	p := process{
		Name: fmt.Sprintf("node%d", f.started), URL: f.url, Schema: "chaos", Version: f.version,
		Sabotage: f.sabotage, Lease: lease,
	}
	p.Ledger = filepath.Join(f.dir, p.Name)
	text, err := json.Marshal(p)
	check(f.t, err)
	runs := f.programs[rand.N(len(f.programs))]
	n := &node{name: p.Name, cmd: osexec.Command(runs.path), out: &bytes.Buffer{}}
	n.cmd.Env = append(os.Environ(), processEnv+"="+string(text), clockEnv+"="+runs.clock)
	if runs.suspends {
		n.suspended, err = testkit.NewSuspended(f.clocks)
		check(f.t, err)
		n.cmd.Env = append(n.cmd.Env, testkit.SuspendedVariable+"="+n.suspended.Path)
	}
	n.cmd.Stdout, n.cmd.Stderr = n.out, n.out
	n.in, err = n.cmd.StdinPipe()
	check(f.t, err)
	check(f.t, n.cmd.Start())
	f.nodes = append(f.nodes, n)
	if runs.clock != "" {
		f.faults["clock "+runs.clock]++
	}
}

// order sends a line to the process.
func (f *fleet) order(n *node, line string) {
	f.t.Helper()
	if _, err := io.WriteString(n.in, line+"\n"); err != nil {
		_ = n.cmd.Wait()
		f.t.Fatalf("%s: %v: %v\n%.2000s", n.name, err, n.cmd.ProcessState, n.out)
	}
}

// end ends the process by Shutdown.
func (f *fleet) end(n *node) {
	f.t.Helper()
	check(f.t, n.in.Close())
	if err := n.cmd.Wait(); err != nil && f.sabotage == "" {
		f.t.Errorf("%s: %v\n%.2000s", n.name, err, n.out)
	}
	f.nodes = slices.DeleteFunc(f.nodes, func(other *node) bool { return other == n })
}

// faults are the kinds of faults of a fleet, and the functions that cause them.
var faults = map[string]func(f *fleet, victim *node){
	"kill": func(f *fleet, victim *node) {
		check(f.t, victim.cmd.Process.Kill())
		_ = victim.cmd.Wait()
		f.nodes = slices.DeleteFunc(f.nodes, func(n *node) bool { return n == victim })
		f.start()
	},
	"pause": func(f *fleet, victim *node) {
		f.stopped(victim, func() { time.Sleep(beyondLease()) })
	},
	// A start is held back until the lease of its node is over.
	"stall": func(f *fleet, victim *node) { f.order(victim, "stall") },
	// A process ends, and one of a later version, which handles one more kind, replaces it.
	"deploy": func(f *fleet, victim *node) {
		f.end(victim)
		f.version++
		f.start()
	},
	"cut": func(f *fleet, _ *node) { f.proxy.CutAll() },
	"lost answers": func(f *fleet, _ *node) {
		f.proxy.Disturb(lose(func([]byte) bool { return rand.N(20) == 0 }))
		time.Sleep(lease)
		f.proxy.Disturb(nil)
	},
	"requests held": func(f *fleet, _ *node) { f.hold(pgtest.Requests) },
	"answers held":  func(f *fleet, _ *node) { f.hold(pgtest.Answers) },
	"server crash": func(f *fleet, _ *node) {
		check(f.t, f.server.Stop(pgtest.Immediate))
		time.Sleep(rand.N(beyondLease()))
		f.restart()
	},
	"outage":             (*fleet).outage,
	"server's clock set": func(f *fleet, _ *node) { f.setClock(rand.N(6*lease) - 3*lease) },
	suspend:              (*fleet).suspend,
	"server pause": func(f *fleet, _ *node) {
		check(f.t, f.server.Pause())
		time.Sleep(beyondLease())
		check(f.t, f.server.Resume())
	},
}

// setClock sets the clock of the server.
func (f *fleet) setClock(ahead time.Duration) {
	f.t.Helper()
	from := systemTime()
	f.ask(func(conn *pgx.Conn) {
		exec(f.t, conn, "SET chaos.clock = 0") // or ALTER SYSTEM does not know it
		exec(f.t, conn, fmt.Sprintf("ALTER SYSTEM SET chaos.clock = %d", int64(ahead)))
		exec(f.t, conn, "SELECT pg_reload_conf()")
	})
	f.clock = append(f.clock, step{from, systemTime(), ahead})
}

// beyondLease returns a time that is longer than a lease.
func beyondLease() time.Duration { return lease*5/4 + rand.N(lease/2) }

func (f *fleet) hold(d pgtest.Direction) {
	release := f.proxy.Hold(d)
	time.Sleep(beyondLease())
	release()
}

func (f *fleet) restart() {
	f.t.Helper()
	check(f.t, f.server.Restart())
	var up int64
	f.ask(func(conn *pgx.Conn) {
		const sql = "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1e9)::bigint"
		check(f.t, conn.QueryRow(f.t.Context(), sql).Scan(&up))
	})
	f.restarts = append(f.restarts, up)
}

// outage is a restart of the server, which takes longer than a lease. A node comes back after the others.
func (f *fleet) outage(last *node) {
	f.t.Helper()
	f.stopped(last, func() {
		check(f.t, f.server.Stop(pgtest.Fast))
		time.Sleep(lease * 5 / 4)
		f.restart()
		time.Sleep(lease * 3 / 4)
	})
}

// stopped stops the process while meanwhile is called.
func (f *fleet) stopped(n *node, meanwhile func()) {
	f.t.Helper()
	stop := event{What: "stop", Node: n.name, From: systemTime()}
	check(f.t, n.cmd.Process.Signal(syscall.SIGSTOP))
	meanwhile()
	stop.At = systemTime()
	f.own = append(f.own, stop)
	check(f.t, n.cmd.Process.Signal(syscall.SIGCONT))
}

// suspend is the fault of a machine that is suspended. Only a program whose clocks can stand still has it. suspendAll is
// what the fault is if the wall clock stands still too, as in a virtual machine that is paused.
const (
	suspend    = "suspend"
	suspendAll = "suspend, all clocks"
)

// suspend suspends the machine of a process, mostly just after a kind was paused or the node was drained.
func (f *fleet) suspend(_ *node) {
	f.t.Helper()
	able := slices.DeleteFunc(slices.Clone(f.nodes), func(n *node) bool { return n.suspended == nil })
	if len(able) == 0 {
		return
	}
	victim, paused := able[rand.N(len(able))], rand.N(2) == 0
	undo := func() {}
	switch rand.N(4) {
	case 0, 1:
		undo = f.operate("pause kind", "effect", func(s *durable.Scheduler, ctx context.Context, kind string) error { return s.PauseKind(ctx, kind) }, (*durable.Scheduler).ResumeKind)
	case 2:
		undo = f.operate("drain", victim.name, (*durable.Scheduler).Drain, (*durable.Scheduler).Undrain)
	}
	f.stopped(victim, func() {
		const stops = 20 * time.Millisecond // at the latest after that
		time.Sleep(stops)
		from := time.Now()
		time.Sleep(100*time.Millisecond + rand.N(3*time.Second))
		check(f.t, victim.suspended.Skip(time.Since(from), paused))
	})
	f.own[len(f.own)-1].Verb = suspend
	if paused {
		f.own[len(f.own)-1].Verb = suspendAll
		f.faults[suspendAll]++
	}
	time.Sleep(settingsFor + time.Second/2)
	undo()
}

// suspensions is a run with suspensions only, after which the nodes are still members. With a shorter lease, other nodes
// take over the tasks of a node before its settings are too old.
func (f *fleet) suspensions(between func() time.Duration) verdict {
	f.t.Helper()
	defer func(was time.Duration) { lease = was }(lease)
	lease = 5 * time.Second
	return f.run(3, slices.Repeat([]string{suspend}, 6), between)
}

// settingsFor is how long a node may start runs of a kind that was paused, or although it was drained.
const settingsFor = 2 * time.Second

// operate calls a verb for a kind or node, and returns the function that undoes it.
func (f *fleet) operate(what, key string, do, undo func(s *durable.Scheduler, ctx context.Context, key string) error) func() {
	f.t.Helper()
	ctx := f.t.Context()
	call := func(verb func(s *durable.Scheduler, ctx context.Context, key string) error) {
		e, err := postgres.Open(ctx, f.server.URL(), postgres.WithSchema("chaos"), postgres.WithServersClock())
		check(f.t, err)
		defer e.Close()
		s, err := durable.Connect(ctx, e, durable.WithLogger(testkit.Quiet()))
		check(f.t, err)
		check(f.t, verb(s, ctx, key))
		check(f.t, s.Shutdown(ctx))
	}
	call(do)
	f.own = append(f.own, event{At: systemTime(), What: what, Key: key})
	return func() {
		f.own = append(f.own, event{At: systemTime(), What: "call", Verb: "undo " + what, Key: key})
		call(undo)
	}
}

// fault causes a fault of one kind, or none.
func (f *fleet) fault(kind string) {
	f.t.Helper()
	if kind == "" {
		return
	}
	f.faults[kind]++
	faults[kind](f, f.nodes[rand.N(len(f.nodes))])
}

// run starts the processes, causes the faults, and ends the processes when no task is left. It returns the broken
// promises.
func (f *fleet) run(nodes int, faults []string, between func() time.Duration) verdict {
	f.t.Helper()
	for range nodes {
		f.start()
	}
	for _, kind := range faults {
		time.Sleep(between())
		f.fault(kind)
	}
	time.Sleep(time.Second)
	v, _ := f.settle()
	return v
}

// settle ends the processes when no task is left, and returns the broken promises and the events.
func (f *fleet) settle() (verdict, []event) {
	f.t.Helper()
	f.quiet()
	events := append(f.events(), f.own...)
	v := judge(events, f.effects(), f.left(), f.restarts, f.clock)
	v.measure(f)
	f.clear()
	return v, events
}

// quiet ends the verbs, waits until no task is left, and ends the processes. It resumes the remaining pauses of the
// processes.
func (f *fleet) quiet() {
	f.t.Helper()
	for _, n := range f.nodes {
		f.order(n, "stop")
	}
	limit := time.Minute
	if f.sabotage != "" {
		limit = 4 * lease
	}
	f.ask(func(conn *pgx.Conn) {
		for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			var left, leased int
			check(f.t, conn.QueryRow(f.t.Context(), "SELECT (SELECT count(*) FROM chaos.task), "+
				"(SELECT count(*) FROM chaos.member)").Scan(&left, &leased))
			if left == 0 && leased == len(f.nodes) {
				break
			}
			f.resume(f.keys(fmt.Sprint("SELECT convert_from(key, 'UTF8') FROM chaos.task WHERE due = ", pausedDue)))
		}
	})
	for _, n := range slices.Clone(f.nodes) {
		f.end(n)
	}
}

func (f *fleet) resume(keys []string) {
	f.t.Helper()
	if len(keys) == 0 {
		return
	}
	ctx := f.t.Context()
	e, err := postgres.Open(ctx, f.server.URL(), postgres.WithSchema("chaos"), postgres.WithServersClock())
	check(f.t, err)
	defer e.Close()
	s, err := durable.New(ctx, e, durable.WithLogger(testkit.Quiet()))
	check(f.t, err)
	for _, key := range keys {
		f.own = append(f.own, event{At: systemTime(), What: "call", Verb: "resume", Key: key})
		if err := s.Resume(ctx, key); !errors.Is(err, durable.ErrTaskKeyNotFound) {
			check(f.t, err)
		}
	}
	check(f.t, s.Shutdown(ctx))
}

// clear removes the data of the run.
func (f *fleet) clear() {
	f.t.Helper()
	f.own = nil
	for _, name := range f.ledgers() {
		check(f.t, os.Remove(name))
	}
	f.ask(func(conn *pgx.Conn) {
		for _, sql := range []string{"TRUNCATE effects", "DELETE FROM chaos.task", "DELETE FROM chaos.member"} {
			exec(f.t, conn, sql)
		}
	})
}

func (f *fleet) ledgers() []string {
	f.t.Helper()
	names, err := filepath.Glob(filepath.Join(f.dir, "*"))
	check(f.t, err)
	return names
}

// events returns the events of all ledgers, in order of time.
func (f *fleet) events() (all []event) {
	f.t.Helper()
	for _, name := range f.ledgers() {
		text, err := os.ReadFile(name)
		check(f.t, err)
		for line := range bytes.Lines(text) {
			var ev event
			if bytes.HasSuffix(line, []byte("\n")) { // otherwise the process was killed while writing
				check(f.t, json.Unmarshal(line, &ev))
				all = append(all, ev)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	return all
}

// effects returns how often each effect has happened.
func (f *fleet) effects() map[string]int {
	f.t.Helper()
	count := make(map[string]int)
	for _, key := range f.keys("SELECT key FROM effects") {
		count[key]++
	}
	return count
}

// left returns the keys of the remaining tasks.
func (f *fleet) left() map[string]bool {
	f.t.Helper()
	left := make(map[string]bool)
	for _, key := range f.keys("SELECT convert_from(key, 'UTF8') FROM chaos.task") {
		left[key] = true
	}
	return left
}

func (f *fleet) keys(sql string) (keys []string) {
	f.t.Helper()
	f.ask(func(conn *pgx.Conn) {
		rows, err := conn.Query(f.t.Context(), sql)
		check(f.t, err)
		keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
		check(f.t, err)
	})
	return keys
}
