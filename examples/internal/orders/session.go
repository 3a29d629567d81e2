// SPDX-License-Identifier: MIT

package orders

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

var errUnreadable = errors.New("the orders cannot be read")

// A session is one run of the program: a shop with its wheel, the source of its orders, and its measurements.
type session struct {
	config
	source  *source
	console *console

	wheel    *timewheel.TimeWheel
	ledger   *ledger
	shop     *shop
	intake   *intake
	feeder   *feeder
	lateness *lateness
	meter    *meter
	page     *webPage // nil without -http

	took        time.Duration
	interrupted bool
}

func newSession(c config, src *source, con *console) (*session, error) {
	s := &session{config: c, source: src, console: con, ledger: newLedger(src.stock), lateness: newLateness()}
	opts := []timewheel.Option{timewheel.WithObserver(s.lateness.observe)}
	if c.http != "" {
		page, err := newWebPage(c.http)
		if err != nil {
			return nil, err
		}
		s.page = page
		opts = append(opts, page.recorder.Option())
	}
	wheel, err := timewheel.New(c.tick, slots, opts...)
	if err != nil {
		return nil, fmt.Errorf("making the wheel: %w", err)
	}
	s.wheel = wheel
	s.shop = newShop(wheel, s.ledger, scale(c.window, c.speed))
	s.meter = newMeter(wheel.Len, s.shop.tally.created.Load)
	s.intake = newIntake()
	s.feeder = &feeder{shop: s.shop, pace: pace{speed: c.speed}, in: s.intake.orders}
	return s, nil
}

// work processes all orders, and returns when the last one is settled or ctx is done.
func (s *session) work(ctx context.Context) error {
	readCtx, stopReading := context.WithCancel(ctx)
	defer stopReading()
	stop := make(chan struct{})
	var aside sync.WaitGroup
	aside.Go(func() { s.meter.run(stop) })
	aside.Go(func() { s.console.follow(stop, s.status) })
	// A read from standard input cannot be interrupted, so work does not wait for this goroutine.
	go s.intake.run(readCtx, s.source, s.console.println)

	if s.page != nil {
		s.console.println("the wheel: " + s.page.address())
		defer s.page.serve(s.wheel)()
	}
	began := time.Now()
	s.wheel.Start()
	err := s.feeder.run(ctx)
	s.shop.close()
	if err == nil {
		select {
		case <-s.shop.idle:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.took = time.Since(began)
	err = errors.Join(s.outcome(ctx, err), s.shutdown())
	close(stop)
	aside.Wait()
	return err
}

// outcome returns the error of the run. An interruption is recorded, but is not an error.
func (s *session) outcome(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		s.interrupted = true
		return nil
	}
	if s.feeder.in == nil && s.intake.err != nil {
		return errors.Join(err, fmt.Errorf("%w: %w", errUnreadable, s.intake.err))
	}
	return err
}

// shutdown stops the wheel after the running jobs have ended.
func (s *session) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := s.wheel.Shutdown(ctx); err != nil {
		return fmt.Errorf("shutting the wheel down: %w", err)
	}
	return nil
}

// status returns the status for the progress bar.
func (s *session) status() status {
	t := &s.shop.tally
	good := s.intake.good.Load()
	total := good
	if !s.intake.done.Load() {
		total = s.source.total(good)
	}
	return status{
		settled: t.refused.Load() + t.paid.Load() + t.givenBack.Load(),
		total:   total,
		live:    s.wheel.Len(),
	}
}

// report returns the results of the session.
func (s *session) report() *report {
	t, f := &s.shop.tally, s.feeder
	return &report{
		name:        s.source.name,
		keepsIDs:    s.source.keepsIDs,
		speed:       s.speed,
		window:      s.window,
		took:        s.took,
		interrupted: s.interrupted,

		created:   t.created.Load(),
		refused:   t.refused.Load(),
		paid:      t.paid.Load(),
		givenBack: t.givenBack.Load(),
		paidLate:  t.paidLate.Load(),
		malformed: s.intake.malformed.Load(),

		rows:    s.ledger.rows(),
		spread:  s.lateness.spread(),
		feeding: f.ended.Sub(f.began),
		lag:     f.lag,
		found:   s.meter.figures,

		tick:  s.tick,
		slots: slots,
		stats: s.wheel.Stats(),
	}
}
