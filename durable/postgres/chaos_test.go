// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// A cluster is some processes on a server of their own, by way of a proxy.
type cluster struct {
	t      *testing.T
	server *pgtest.Server
	proxy  *pgtest.Proxy
	dir    string
	conn   func() *pgx.Conn // to the server as it is now

	sabotage string
	nodes    []*node
	started  int
	faults   map[string]int
}

// A node is a process.
type node struct {
	name string
	cmd  *osexec.Cmd
	in   io.WriteCloser
	out  *bytes.Buffer
}

func newCluster(t *testing.T, nodes int, sabotage string) *cluster {
	t.Helper()
	s, err := start()
	check(t, err)
	c := &cluster{t: t, server: s, dir: t.TempDir(), sabotage: sabotage, faults: make(map[string]int)}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait()
		}
		check(t, s.Close())
	})
	c.proxy = newProxy(t, s)
	c.conn = func() *pgx.Conn { return connect(t, s.URL()) }
	conn := c.conn()
	exec(t, conn, "CREATE TABLE effects (key text)")
	check(t, postgres.Migrate(t.Context(), conn, postgres.WithSchema("chaos")))
	for range nodes {
		c.start()
	}
	return c
}

// start starts a process.
func (c *cluster) start() {
	c.t.Helper()
	c.started++
	p := process{
		Name: fmt.Sprintf("node%d", c.started), Schema: "chaos", Sabotage: c.sabotage,
		URL: c.proxy.URL(),
	}
	p.Ledger = filepath.Join(c.dir, p.Name)
	text, err := json.Marshal(p)
	check(c.t, err)
	n := &node{name: p.Name, cmd: osexec.Command(os.Args[0]), out: &bytes.Buffer{}}
	n.cmd.Env = append(os.Environ(), processEnv+"="+string(text))
	n.cmd.Stdout, n.cmd.Stderr = n.out, n.out
	n.in, err = n.cmd.StdinPipe()
	check(c.t, err)
	check(c.t, n.cmd.Start())
	c.nodes = append(c.nodes, n)
}

// fault causes trouble of one kind.
func (c *cluster) fault(kind string) {
	c.faults[kind]++
	victim := c.nodes[rand.N(len(c.nodes))]
	switch kind {
	case "kill":
		check(c.t, victim.cmd.Process.Kill())
		_ = victim.cmd.Wait()
		c.nodes = slices.DeleteFunc(c.nodes, func(n *node) bool { return n == victim })
		c.start()
	case "pause":
		check(c.t, victim.cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(lease * 2)
		check(c.t, victim.cmd.Process.Signal(syscall.SIGCONT))
	case "cut":
		c.proxy.CutAll()
	case "lost answers":
		c.proxy.Disturb(lose(func([]byte) bool { return rand.N(20) == 0 }))
		time.Sleep(lease)
		c.proxy.Disturb(nil)
	case "restart":
		check(c.t, c.server.Stop(pgtest.Immediate))
		time.Sleep(rand.N(2 * lease))
		check(c.t, c.server.Restart())
	}
}

// quiet ends the verbs, waits until no task is left, and ends the processes.
func (c *cluster) quiet() {
	c.t.Helper()
	for _, n := range c.nodes {
		_, err := io.WriteString(n.in, "\n")
		check(c.t, err)
	}
	conn := c.conn()
	var left int
	limit := time.Minute
	if c.sabotage != "" {
		limit = 6 * lease
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		var leased int
		check(c.t, conn.QueryRow(c.t.Context(), "SELECT (SELECT count(*) FROM chaos.task), "+
			"(SELECT count(*) FROM chaos.member)").Scan(&left, &leased))
		if left == 0 && leased == len(c.nodes) || time.Now().After(deadline) {
			break
		}
	}
	for _, n := range c.nodes {
		check(c.t, n.in.Close())
	}
	for _, n := range c.nodes {
		if err := n.cmd.Wait(); err != nil && c.sabotage == "" {
			c.t.Errorf("%s: %v\n%.2000s", n.name, err, n.out)
		}
	}
	c.nodes = nil
}

// events returns what all ledgers have, in the order of time.
func (c *cluster) events() (all []event) {
	c.t.Helper()
	names, err := filepath.Glob(filepath.Join(c.dir, "*"))
	check(c.t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		check(c.t, err)
		for line := range bytes.Lines(text) {
			var ev event
			if bytes.HasSuffix(line, []byte("\n")) { // or the process was killed as it wrote
				check(c.t, json.Unmarshal(line, &ev))
				all = append(all, ev)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	return all
}

// effects returns how often each effect has happened.
func (c *cluster) effects() map[string]int {
	c.t.Helper()
	rows, err := c.conn().Query(c.t.Context(), "SELECT key FROM effects")
	check(c.t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(c.t, err)
	count := make(map[string]int)
	for _, key := range keys {
		count[key]++
	}
	return count
}

// A story is what the ledgers have of one key, which is used once.
type story struct {
	add, remove, move *event
	confirms, starts  []event
	removing, moving  bool // the verb was called
	ended             bool
}

// judge returns what in the ledgers breaks a promise, and counts of what it has seen.
func judge(events []event, effects map[string]int, left map[string]bool,
) (broken []string, counts map[string]int) {
	stories := make(map[string]*story)
	counts = make(map[string]int)
	for _, ev := range events {
		s := stories[ev.Key]
		if s == nil {
			s = &story{}
			stories[ev.Key] = s
		}
		if ev.Err == "" {
			counts[ev.What]++
		} else {
			counts[ev.What+", not done or unknown"]++
		}
		switch ev.What {
		case "call":
			s.removing = s.removing || ev.Verb == "remove"
			s.moving = s.moving || ev.Verb == "move"
		case "add":
			s.add = &ev
		case "remove":
			s.remove = &ev
		case "move":
			s.move = &ev
		case "confirm":
			s.confirms = append(s.confirms, ev)
		case "start":
			s.starts = append(s.starts, ev)
		case "end":
			s.ended = true
		}
	}
	breaks := func(promise, key, format string, args ...any) {
		broken = append(broken, promise+": "+key+" "+fmt.Sprintf(format, args...))
	}
	for key, s := range stories {
		for _, ev := range s.confirms { // Confirm was called after the verb had returned
			if r := s.remove; r != nil && r.Err == "" && ev.From > r.At {
				breaks("D2", key, "is decided to start %v after its removal", time.Duration(ev.From-r.At))
			}
		}
		moved := false // the run to which the task was moved has started
		for i, ev := range s.starts {
			if ev.At < ev.Due {
				breaks("D1", key, "starts %v early", time.Duration(ev.Due-ev.At))
			}
			if s.add != nil && ev.Due < s.add.From+int64(s.add.Delay) {
				breaks("D1", key, "is due %v early", time.Duration(s.add.From+int64(s.add.Delay)-ev.Due))
			}
			if i > 0 && ev.Fence <= s.starts[i-1].Fence {
				breaks("D4", key, "starts with the fence %d after %d", ev.Fence, s.starts[i-1].Fence)
			}
			if i > 0 && ev.Token != s.starts[i-1].Token && !s.moving {
				breaks("D5", key, "has the tokens %s and %s", ev.Token, s.starts[i-1].Token)
			}
			moved = moved || s.move != nil && ev.Due >= s.move.From+int64(s.move.Delay)
			if m := s.move; m != nil && m.Err == "" {
				decided := slices.IndexFunc(s.confirms, func(c event) bool { return c.Fence == ev.Fence })
				if decided >= 0 && s.confirms[decided].From > m.At && ev.Due < m.From+int64(m.Delay) {
					breaks("D2", key, "is decided to start at its old time after it was moved")
				}
			}
		}
		happened := s.ended || effects[key] > 0
		added := s.add != nil && s.add.Err == ""
		switch {
		case s.add != nil && strings.Contains(s.add.Err, "duplicate"):
			breaks("D6", key, "is reported as a duplicate of itself")
		case left[key]:
			breaks("D3", key, "is left over")
		case added && !happened && (!s.removing || s.remove != nil && s.remove.Err == notFound):
			breaks("D6", key, "was added, not removed, and never completed")
		case s.move != nil && s.move.Err == "" && !moved:
			breaks("D6", key, "was moved, and has not run since")
		case effects[key] > 1:
			breaks("D7", key, "has had its effect %d times", effects[key])
		}
	}
	return broken, counts
}

// verdict ends the cluster and judges it.
func (c *cluster) verdict() (broken []string, counts map[string]int) {
	c.t.Helper()
	c.quiet()
	rows, err := c.conn().Query(c.t.Context(), "SELECT convert_from(key, 'UTF8') FROM chaos.task")
	check(c.t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(c.t, err)
	left := make(map[string]bool)
	for _, key := range keys {
		left[key] = true
	}
	return judge(c.events(), c.effects(), left)
}

// Nodes are killed, paused and cut off, and the server is restarted. CHAOS is for how long; a few seconds
// otherwise.
func TestChaos_processes_keepThePromises(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	kinds := []string{"kill", "pause", "cut", "lost answers", "restart"}
	length := time.Duration(0)
	if text := os.Getenv("CHAOS"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		check(t, err)
	}
	c := newCluster(t, 3, "")
	begun := time.Now()
	for round := 0; round == 0 || time.Since(begun) < length; round++ {
		for _, i := range rand.Perm(len(kinds)) {
			time.Sleep(500*time.Millisecond + rand.N(time.Second))
			c.fault(kinds[i])
		}
	}
	time.Sleep(time.Second)
	broken, counts := c.verdict()
	for i, b := range broken {
		if i < 20 {
			t.Error(b)
		}
	}
	t.Logf("in %v: %v; faults %v; broken %d", time.Since(begun).Round(time.Second), counts, c.faults, len(broken))
	for _, what := range []string{"add", "remove", "move", "confirm", "start", "end"} {
		if counts[what] < 100 {
			t.Errorf("there were only %d of %s", counts[what], what)
		}
	}
}

// The checker finds what is broken on purpose.
func TestChaos_sabotage_isFound(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	for _, c := range []struct {
		sabotage string
		faults   []string
		breaks   string
	}{
		{"no start fence", nil, "D2"},
		{"acknowledgement at any revision", nil, "D6"},
		{"completion outside the transaction", []string{"kill", "pause", "kill"}, "D7"},
		{"no reconciliation", []string{"lost answers", "lost answers"}, "D3"},
	} {
		t.Run(c.sabotage, func(t *testing.T) {
			cluster := newCluster(t, 3, c.sabotage)
			time.Sleep(2 * time.Second)
			for _, kind := range c.faults {
				cluster.fault(kind)
				time.Sleep(500 * time.Millisecond)
			}
			broken, counts := cluster.verdict()
			t.Logf("%v; faults %v", counts, cluster.faults)
			if !slices.ContainsFunc(broken, func(b string) bool { return strings.HasPrefix(b, c.breaks) }) {
				t.Errorf("the checker has not found it; it found %.20q", broken)
			} else {
				t.Logf("found %d, such as %s", len(broken), broken[0])
			}
		})
	}
}
