// SPDX-License-Identifier: MIT

package orders

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// atOnce is the maximum number of orders and payments that are written concurrently, so that they share a sync.
const atOnce = 512

// A keptSession is one process of the program with -durable. It continues where the previous process ended or was
// killed.
type keptSession struct {
	config
	source  *source
	console *console

	ledger *ledger
	shop   *keptShop
	intake *intake
	pace   pace

	room        chan struct{}
	mu          sync.Mutex     // protects the field below
	closed      bool           // no further writes are started
	under       sync.WaitGroup // counts orders and payments being written
	tasks       taskCounts
	left        int
	took        time.Duration
	interrupted bool
}

func newKeptSession(c config, open Open, src *source, con *console) (*keptSession, error) {
	s := &keptSession{
		config: c, source: src, console: con, ledger: newLedger(src.stock), intake: newIntake(),
		pace: pace{speed: c.speed}, room: make(chan struct{}, atOnce),
	}
	var err error
	s.shop, err = openKept(open, c.durable, s.ledger, scale(c.window, c.speed))
	return s, err
}

// work processes the orders that are not yet in the book, and settles the orders in the book that are still open.
func (s *keptSession) work(ctx context.Context) error {
	stop := make(chan struct{})
	var aside sync.WaitGroup
	aside.Go(func() { s.console.follow(stop, s.status) })
	readCtx, stopReading := context.WithCancel(ctx)
	defer stopReading()
	go s.intake.run(readCtx, s.source, s.console.println)
	began := time.Now()
	err := s.feed(readCtx)
	s.shop.leave()
	if err == nil {
		select {
		case <-s.shop.idle:
			s.awaitAcknowledged()
		case err = <-s.shop.failed:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	stopReading()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.under.Wait()
	s.tasks.added, s.tasks.removed, s.tasks.run, s.tasks.parked = s.shop.tasks.Counts()
	s.left = s.shop.tasks.Len()
	s.took = time.Since(began)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		s.interrupted, err = true, nil
	}
	err = errors.Join(err, s.shop.close())
	close(stop)
	aside.Wait()
	return err
}

// awaitAcknowledged waits for the tasks of the last orders to end, for at most grace. An order is settled when its step
// is written, but its task ends slightly later, after the handler has returned.
func (s *keptSession) awaitAcknowledged() {
	for end := time.Now().Add(grace); s.shop.tasks.Len() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// feed places each order in the shop at the order's time.
func (s *keptSession) feed(ctx context.Context) error {
	for first := true; ; first = false {
		var o order
		var ok bool
		select {
		case o, ok = <-s.intake.orders:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !ok {
			if s.intake.err != nil {
				return fmt.Errorf("%w: %w", errUnreadable, s.intake.err)
			}
			return nil
		}
		if first {
			// The clock continues from the last order of the previous process.
			passed := max(0, s.shop.latest.Sub(o.at))
			s.pace.begin(o.at, time.Now().Add(-scale(passed, s.speed)))
		}
		if err := s.wait(ctx, s.pace.real(s.pace.offset(o.at))); err != nil {
			return err
		}
		s.shop.enter() // before start, so that the shop is not idle while an order is being placed
		place := func() error {
			defer s.shop.leave()
			return s.shop.place(o)
		}
		if !s.start(ctx, place, func() { s.payLater(ctx, o) }) {
			s.shop.leave()
		}
	}
}

// wait waits until the given time. It returns early with an error if ctx is done or the shop has failed.
func (s *keptSession) wait(ctx context.Context, at time.Time) error {
	select {
	case err := <-s.shop.failed:
		return err
	default:
	}
	if ahead := time.Until(at); ahead > 0 {
		select {
		case <-time.After(ahead):
		case err := <-s.shop.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// start starts a goroutine that calls f and, if f succeeds, then. The number of these goroutines is limited to atOnce.
// start reports whether it started the goroutine.
func (s *keptSession) start(ctx context.Context, f func() error, then func()) bool {
	select {
	case s.room <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		<-s.room
		return false
	}
	s.under.Go(func() {
		defer func() { <-s.room }()
		if err := f(); err != nil {
			s.shop.fail(err)
			return
		}
		then()
	})
	return true
}

// payLater pays an order at the order's payment time, if there is one. The session does not wait for the payment: if
// the session ends first, the next session makes the payment.
func (s *keptSession) payLater(ctx context.Context, o order) {
	if !o.paid {
		return
	}
	time.AfterFunc(time.Until(s.pace.real(s.pace.offset(o.paidAt))), func() {
		if ctx.Err() == nil {
			s.start(ctx, func() error { return s.shop.pay(o.id) }, func() {})
		}
	})
}

func (s *keptSession) status() status {
	t := &s.shop.tally
	good := s.intake.good.Load()
	return status{
		settled: t.refused.Load() + t.paid.Load() + t.givenBack.Load(),
		total:   s.source.total(good),
		live:    s.shop.tasks.Len(),
	}
}

// report returns the results of all processes so far.
func (s *keptSession) report() *keptReport {
	t := &s.shop.tally
	return &keptReport{
		report: report{
			name: s.source.name, speed: s.speed, window: s.window, took: s.took, interrupted: s.interrupted,
			created: t.created.Load(), refused: t.refused.Load(), paid: t.paid.Load(),
			givenBack: t.givenBack.Load(), paidLate: t.paidLate.Load(), malformed: s.intake.malformed.Load(),
			rows: s.ledger.rows(),
		},
		lives: s.shop.lives, tasks: s.tasks, left: s.left,
	}
}

// A keptReport is the report of a session with -durable. Its orders and its ledger cover all processes, and its tasks
// cover only the last one.
type keptReport struct {
	report
	lives int
	tasks taskCounts
	left  int // number of tasks left in the store
}

// A taskCounts holds the results of Tasks.Counts.
type taskCounts struct{ added, removed, run, parked uint64 }

func (r *keptReport) problems() []string {
	var found problems
	r.checkStock(&found)
	found.check(r.interrupted || r.left == 0, "at the end %d tasks are left", r.left)
	found.check(r.tasks.parked == 0, "%d tasks are parked", r.tasks.parked)
	return found
}

func (r *keptReport) write(w io.Writer, paint style) error {
	p := &page{paint: paint}
	p.line("")
	life := "one life"
	if r.lives > 1 {
		life = fmt.Sprintf("%d lives", r.lives)
	}
	p.line("%s orders from %s, each to be paid within %s, at %s times the speed: %s",
		thousands(r.cameIn()), printable(r.name), exact(r.window), times(r.speed), life)
	r.writeOrders(p)
	r.writeLedger(p)
	p.title("Tasks, in this life of " + short(r.took))
	p.line("  %s added, %s removed, %s run, %s left in the store",
		thousands(r.tasks.added), thousands(r.tasks.removed), thousands(r.tasks.run), thousands(r.left))
	p.verdict(r.interrupted, "Interrupted. Start it again with the same flags, and it continues.", r.problems())
	return p.writeTo(w)
}
