// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// TestOperate tests an operator's queries and actions on one scheduler, or on several that share an engine. open
// returns the schedulers with the given options, not yet started. TestOperate works both inside and outside a bubble of
// virtual time.
func TestOperate(t *testing.T, open func(t *testing.T, opts ...durable.Option) []*durable.Scheduler) {
	o := &operated{t: t, gate: make(chan struct{}), rnd: rand.New(rand.NewPCG(1, 2))}
	o.all = open(t, durable.WithObserver(o.observe))
	defer o.stop()
	o.handle()
	o.fill()
	o.states()
	o.queries()
	o.pages()
	o.failures()
	o.groups()
	o.kinds()
	o.nodes()
	o.observed()
	o.bulk()
}

// An operated holds schedulers with tasks in every state that does not end by itself.
type operated struct {
	t    *testing.T
	all  []*durable.Scheduler
	turn int
	gate chan struct{} // closed to end the runs
	rnd  *rand.Rand

	mu       sync.Mutex // protects below
	attempts []durable.Attempt
}

const (
	far   = time.Hour
	tasks = 12 // tasks of each kind
)

// groups are the groups of each kind's tasks: a quarter of the tasks have none, half are in one group, and a quarter
// are in another.
var groups = []string{"", "acme", "acme", "zeta\xff"}

func (o *operated) observe(a durable.Attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts = append(o.attempts, a)
}

func (o *operated) check(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// next returns the next scheduler, in rotation.
func (o *operated) next() *durable.Scheduler {
	o.turn++
	return o.all[o.turn%len(o.all)]
}

func (o *operated) handle() {
	for _, s := range o.all {
		fails := func(_ context.Context, run durable.Run) error {
			return fmt.Errorf("dial 10.0.0.%d:80: connection refused", run.Key[len(run.Key)-1])
		}
		o.check(errors.Join(
			s.Handle("later", func(context.Context, durable.Run) error { return nil }),
			s.Handle("parks", fails, durable.WithRetry(1, far, far), durable.WithParkRepeating()),
			s.Handle("retries", fails, durable.WithRetry(9, far, far)),
			s.Handle("runs", func(ctx context.Context, _ durable.Run) error {
				select {
				case <-o.gate:
				case <-ctx.Done():
				}
				return nil
			}),
		))
	}
}

// fill adds the tasks and waits until they are in their final states.
func (o *operated) fill() {
	for _, kind := range []string{"later", "parks", "retries", "runs"} {
		for i := range tasks {
			task := durable.Task{Key: fmt.Sprintf("%c:%s:%02d", 'a'+i%3, kind, i), Kind: kind, Delay: time.Nanosecond}
			task.Group = groups[i%len(groups)]
			if kind == "later" {
				task.Delay = far + time.Duration(i%4)*time.Minute
			}
			if i%2 == 0 {
				task.Interval, task.Times = far, durable.Forever
			}
			o.check(o.next().AddTask(context.Background(), task))
		}
	}
	for _, s := range o.all {
		o.check(s.Start())
	}
	o.until("all are where they stay", func() bool {
		count := o.count()
		return count[durable.Running] == tasks && count[durable.Parked] == tasks && count[durable.Retrying] == tasks
	})
	o.until("all are counted", func() bool { // a walk may show an end before it is acknowledged
		c, err := o.next().Counts(context.Background())
		failing := 0
		for _, k := range c.Kinds {
			failing += k.Failing
		}
		return err == nil && c.Whole && len(c.Kinds) == 4 && failing == 2*tasks && o.next().Stats().Parked == tasks
	})
}

// until waits for the condition to become true.
func (o *operated) until(what string, is func() bool) {
	o.t.Helper()
	for began := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			o.t.Fatalf("it never comes that %s: %v", what, o.count())
		}
	}
}

// list returns all tasks, using a plain walk.
func (o *operated) list() (all []durable.Info) {
	o.t.Helper()
	for i, err := range o.next().All(context.Background()) {
		o.check(err)
		all = append(all, i)
	}
	return all
}

func (o *operated) count() map[durable.State]int {
	count := make(map[durable.State]int)
	for _, i := range o.list() {
		count[i.State]++
	}
	return count
}

func (o *operated) states() {
	names := make(map[string]bool)
	infos, err := o.next().Nodes(context.Background())
	o.check(err)
	for _, n := range infos {
		names[n.Name] = true
	}
	for _, i := range o.list() {
		got, ok, err := o.next().Get(context.Background(), i.Key)
		if err != nil || !ok || got.State != i.State || got.Node != i.Node {
			o.t.Errorf("Get says %v on %q, %v, %v, and All %v on %q", got.State, got.Node, ok, err, i.State, i.Node)
		}
		failed := i.Kind == "parks" || i.Kind == "retries"
		if failed != (len(i.Failed) == 1) || failed && (i.Failed[0].Text != i.Failure || i.Failed[0].At.IsZero()) {
			o.t.Errorf("%s has failed: %+v", i.Key, i.Failed)
		}
		if i.State == durable.Running && i.Node != "" && !names[i.Node] {
			o.t.Errorf("%s runs on the node %q of %v", i.Key, i.Node, names)
		}
	}
	c, err := o.next().Counts(context.Background())
	o.check(err)
	want := []durable.KindCounts{
		{Kind: "later", Tasks: tasks}, {Kind: "parks", Tasks: tasks, Failing: tasks, Parked: tasks},
		{Kind: "retries", Tasks: tasks, Failing: tasks}, {Kind: "runs", Tasks: tasks},
	}
	if !slices.Equal(c.Kinds, want) || !c.Whole || c.At.IsZero() {
		o.t.Errorf("the census is %+v, want %+v", c, want)
	}
	if s := o.next().Stats(); s.Pending != 4*tasks || s.Parked != tasks {
		o.t.Errorf("the accounts are %+v", s)
	}
}

// fits reports whether the task matches the query.
func fits(q durable.Query, i durable.Info) bool {
	return strings.HasPrefix(i.Key, q.Prefix) && (q.Kind == "" || i.Kind == q.Kind) && (q.Group == "" || i.Group == q.Group) &&
		(q.State == durable.AnyState || i.State == q.State) && (!q.Repeating || i.Times != 1) &&
		(q.Failure == "" || strings.Contains(i.Failure, q.Failure) ||
			q.Failure == "dial #.#.#.#:#: connection refused" && i.Failure != "")
}

func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

func (o *operated) query() durable.Query {
	return durable.Query{
		State:     durable.State(o.rnd.IntN(6)),
		Prefix:    pick(o.rnd, "", "", "a", "b:", "c:parks:", "a:runs:0", "b:retries:01", "z"),
		Kind:      pick(o.rnd, "", "", "", "later", "parks", "retries", "runs", "none"),
		Group:     pick(o.rnd, "", "", "", "acme", "zeta\xff", "zeta"),
		Failure:   pick(o.rnd, "", "", "", "connection", "10.0.0.49", "dial #.#.#.#:#: connection refused", "no such"),
		Repeating: o.rnd.IntN(4) == 0,
		Limit:     o.rnd.IntN(8),
		For:       time.Minute,
	}
}

// find returns the tasks from all pages of a query.
func (o *operated) find(q durable.Query) (all []durable.Info) {
	o.t.Helper()
	for {
		f, err := o.next().Find(context.Background(), q)
		o.check(err)
		if limit := cmp.Or(q.Limit, 100); len(f.Tasks) > limit || f.Cut || f.Looked < len(f.Tasks) ||
			f.Next != "" && len(f.Tasks) < limit {
			o.t.Fatalf("%+v: a page of %d tasks, %d looked at, cut %v", q, len(f.Tasks), f.Looked, f.Cut)
		}
		all = append(all, f.Tasks...)
		if f.Next == "" {
			return all
		}
		q.After = f.Next
	}
}

// queries compares random queries with a plain filter over all tasks.
func (o *operated) queries() {
	all := o.list()
	for range 300 {
		q := o.query()
		var want []string
		for _, i := range all {
			if fits(q, i) {
				want = append(want, i.Key+i.State.String())
			}
		}
		var got []string
		found := o.find(q)
		for _, i := range found {
			got = append(got, i.Key+i.State.String())
		}
		byKey := slices.IsSortedFunc(found, func(a, b durable.Info) int { return strings.Compare(a.Key, b.Key) })
		byDue := slices.IsSortedFunc(found, func(a, b durable.Info) int {
			return cmp.Or(due(a).Compare(due(b)), strings.Compare(a.Key, b.Key))
		})
		alone := q.Prefix != "" || q.Failure != "" || q.State == durable.Retrying || q.State == durable.Running
		if alone && !byKey || !alone && !byDue {
			o.t.Errorf("%+v: out of order: %v", q, got)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			o.t.Fatalf("%+v finds %v, want %v", q, got, want)
		}
	}
}

// due returns the task's due time. Parked tasks sort last.
func due(i durable.Info) time.Time {
	if i.State == durable.Parked {
		return time.Unix(1<<40, 0)
	}
	return i.Next
}

func (o *operated) pages() {
	ctx := context.Background()
	s := o.next()
	f, err := s.Find(ctx, durable.Query{State: durable.Scheduled, Limit: 5})
	o.check(err)
	for name, q := range map[string]durable.Query{
		"of no cursor":     {After: "!"},
		"of another order": {Prefix: "a", After: f.Next},
		"cut off":          {After: f.Next[:3]},
		"below none":       {Limit: -1},
	} {
		if _, err := s.Find(ctx, q); !errors.Is(err, durable.ErrInvalidTask) {
			o.t.Errorf("a page %s: %v", name, err)
		}
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Find(done, durable.Query{}); !errors.Is(err, context.Canceled) {
		o.t.Errorf("Find with a context that is done: %v", err)
	}
}

func (o *operated) failures() {
	f, err := o.next().Failures(context.Background())
	o.check(err)
	const text = "dial #.#.#.#:#: connection refused"
	if len(f.Groups) != 2 || f.Cut || f.Looked != 2*tasks {
		o.t.Fatalf("the failures are %+v", f)
	}
	for i, want := range []durable.FailureGroup{
		{Kind: "parks", Text: text, Tasks: tasks, Parked: tasks}, {Kind: "retries", Text: text, Tasks: tasks},
	} {
		g := f.Groups[i]
		last := g.Last
		want.Example, want.Last = g.Example, last
		if g != want || last.IsZero() || !strings.Contains(g.Example, g.Kind) {
			o.t.Errorf("group %d is %+v, want %+v", i, g, want)
		}
		if found := o.find(durable.Query{Kind: g.Kind, Failure: g.Text, For: time.Minute}); len(found) != g.Tasks {
			o.t.Errorf("%d tasks are found of the group %+v", len(found), g)
		}
	}
}

// groups compares the counts of Groups with a plain count over all tasks.
func (o *operated) groups() {
	all := o.list()
	for range 100 {
		q := o.query()
		var want durable.Groups
		at := make(map[[2]string]int)
		for _, i := range all {
			if !fits(q, i) {
				continue
			}
			of := [2]string{i.Kind, i.Group}
			if _, ok := at[of]; !ok {
				at[of] = len(want.Largest)
				want.Largest = append(want.Largest, durable.GroupCounts{Kind: i.Kind, Group: i.Group})
			}
			want.Largest[at[of]].Tasks++
		}
		slices.SortFunc(want.Largest, func(a, b durable.GroupCounts) int {
			return cmp.Or(b.Tasks-a.Tasks, strings.Compare(a.Kind, b.Kind), strings.Compare(a.Group, b.Group))
		})
		for len(want.Largest) > 10 {
			want.Others.Tasks += want.Largest[len(want.Largest)-1].Tasks
			want.Largest = want.Largest[:len(want.Largest)-1]
			want.More++
		}
		got, err := o.next().Groups(context.Background(), q)
		o.check(err)
		if !slices.Equal(got.Largest, want.Largest) || got.More != want.More || got.Others != want.Others || got.Cut {
			o.t.Fatalf("the groups of %+v are %+v, want %+v", q, got, want)
		}
	}
}

func (o *operated) kinds() {
	sum := make(map[string]durable.KindInfo)
	for _, s := range o.all {
		infos := s.Kinds()
		if !slices.IsSortedFunc(infos, func(a, b durable.KindInfo) int { return cmp.Compare(a.Kind, b.Kind) }) {
			o.t.Errorf("the kinds are %+v", infos)
		}
		for _, k := range infos {
			all := sum[k.Kind]
			all.Kind, all.Attempts, all.Least = k.Kind, k.Attempts, k.Least
			all.Started += k.Started
			all.Succeeded += k.Succeeded
			all.Failed += k.Failed
			all.ParkedTotal += k.ParkedTotal
			sum[k.Kind] = all
		}
	}
	for _, want := range []durable.KindInfo{
		{Kind: "later", Attempts: 10, Least: time.Second},
		{Kind: "parks", Attempts: 1, Least: far, Started: tasks, Failed: tasks, ParkedTotal: tasks},
		{Kind: "retries", Attempts: 9, Least: far, Started: tasks, Failed: tasks},
		{Kind: "runs", Attempts: 10, Least: time.Second, Started: tasks},
	} {
		if got := sum[want.Kind]; got != want {
			o.t.Errorf("the kind is %+v, want %+v", got, want)
		}
	}
}

func (o *operated) nodes() {
	for _, s := range o.all {
		var infos []durable.NodeInfo
		o.until("every node reports", func() bool { // nodes report at their next renewal
			var err error
			infos, err = s.Nodes(context.Background())
			o.check(err)
			return !slices.ContainsFunc(infos, func(n durable.NodeInfo) bool { return len(n.Kinds) != 4 })
		})
		self := 0
		for _, n := range infos {
			if n.Self {
				self++
			}
			if n.Name == "" || n.Workers == 0 || n.Started.IsZero() || !slices.IsSorted(n.Kinds) ||
				n.ID != 0 && (n.Lease <= 0 || n.Left <= 0) {
				o.t.Errorf("the node is %+v", n)
			}
		}
		if self != 1 || len(infos) != len(o.all) {
			o.t.Errorf("the nodes are %+v", infos)
		}
	}
}

func (o *operated) observed() {
	o.until("every attempt is observed", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.attempts) >= 2*tasks
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.attempts) != 2*tasks {
		o.t.Errorf("%d attempts were observed", len(o.attempts))
	}
	for _, a := range o.attempts {
		if a.Parked != (a.Kind == "parks") || a.Attempt != 1 || !strings.Contains(a.Failure, "refused") ||
			a.Ended.Before(a.Started) || a.Due.IsZero() || !strings.Contains(a.Key, a.Kind) || a.Generation == 0 {
			o.t.Errorf("observed was %+v", a)
		}
	}
}

func (o *operated) bulk() {
	ctx := context.Background()
	do := func(q durable.Query, action durable.Action, want int) {
		o.t.Helper()
		if n, err := o.next().Bulk(ctx, q, action); n != want || err != nil {
			o.t.Errorf("Bulk(%+v, %d) = %d, %v, want %d", q, action, n, err, want)
		}
	}
	q := durable.Query{Prefix: "a", Kind: "later", Limit: 1}
	do(q, durable.DoNothing, tasks/3)
	if n := len(o.list()); n != 4*tasks {
		o.t.Errorf("after nothing was done there are %d tasks", n)
	}
	do(q, durable.DoRemove, tasks/3)
	do(q, durable.DoRemove, 0)
	do(durable.Query{Kind: "retries", Group: "zeta\xff"}, durable.DoPause, tasks/4)
	do(durable.Query{Group: "zeta\xff"}, durable.DoResume, tasks/4)
	do(durable.Query{State: durable.Parked}, durable.DoRunNow, tasks)
	o.until("the parked tasks are parked again", func() bool {
		again := 0
		for _, i := range o.list() {
			if i.Kind == "parks" && i.Seq == 1 && i.State == durable.Parked {
				again++
			}
		}
		return again == tasks
	})
	do(durable.Query{Failure: "refused"}, durable.DoRemove, 2*tasks)
	do(durable.Query{Kind: "later"}, durable.DoRunNow, tasks-tasks/3)
	o.until("what was due later has run", func() bool { // DoRunNow starts run 1, and the end of run 1 schedules run 2
		return !slices.ContainsFunc(o.list(), func(i durable.Info) bool { return i.Kind == "later" && i.Seq < 2 })
	})
	do(durable.Query{State: durable.Running}, durable.DoRemove, tasks)
	if _, err := o.next().Bulk(ctx, q, 9); !errors.Is(err, durable.ErrInvalidTask) {
		o.t.Errorf("an unknown action: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	n, err := o.next().Bulk(done, durable.Query{}, durable.DoRemove)
	if n != 0 || !errors.Is(err, context.Canceled) {
		o.t.Errorf("Bulk with a context that is done: %d, %v", n, err)
	}
}

func (o *operated) stop() {
	close(o.gate)
	for _, s := range o.all {
		if err := s.Shutdown(context.Background()); err != nil {
			o.t.Errorf("shutdown: %v", err)
		}
	}
}
