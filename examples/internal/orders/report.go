// SPDX-License-Identifier: MIT

package orders

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	barWidth  = 30
	shownSKUs = 10 // number of SKUs with a row of their own in the ledger; the other SKUs share a row
	skuWidth  = 20 // maximum number of characters of a SKU in the ledger
)

// A report holds all results of a run of the program.
type report struct {
	name        string // name of the source
	keepsIDs    bool   // the source keeps the IDs of all orders
	speed       float64
	window      time.Duration // on the orders' clock
	took        time.Duration
	interrupted bool

	created, refused, paid, givenBack, paidLate, malformed int64

	rows   []row
	spread spread

	feeding, lag time.Duration
	found        measures

	tick  time.Duration
	slots int
	stats timewheel.Stats
}

// cameIn returns the number of orders that reached the shop.
func (r *report) cameIn() int64 { return r.created + r.refused }

func (r *report) badLines() int64 { return r.malformed }

// held returns the number of orders that still hold stock.
func (r *report) held() int64 { return r.created - r.paid - r.givenBack }

// problems returns the violations, or nil if everything balances.
func (r *report) problems() []string {
	var found problems
	r.checkStock(&found)
	found.check(r.tasksBalance(), "the wheel's tasks do not balance")
	found.check(r.runsBalance(), "the wheel's runs do not balance")
	found.check(r.sidesAgree(), "the wheel counts other tasks than the shop counts orders")
	found.check(r.spread.early == 0, "%d runs began before they were due", r.spread.early)
	return found
}

// checkStock adds the errors in the ledger to found.
func (r *report) checkStock(found *problems) {
	var all account
	for _, row := range r.rows {
		found.check(row.balances(), "the stock of %s does not balance", printable(row.sku))
		all = all.plus(row.account)
	}
	if !r.interrupted {
		found.check(r.held() == 0 && all.held == 0, "at the end %d orders hold %d units", r.held(), all.held)
	}
}

// problems holds the violations found.
type problems []string

func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

func (r *report) tasksBalance() bool {
	s := r.stats
	return s.Added == s.Finished+s.Removed+uint64(s.Pending)
}

func (r *report) runsBalance() bool {
	s := r.stats
	return s.Due == s.Started+s.Missed+uint64(s.Waiting)+s.Withdrawn && s.Panicked == 0
}

// sidesAgree reports whether the shop's counts match the wheel's.
func (r *report) sidesAgree() bool {
	s := r.stats
	return s.Added == uint64(r.created) && s.Removed == uint64(r.paid) && s.Finished == uint64(r.givenBack) &&
		int64(s.Pending) == r.held()
}

// write writes the report in a form for people.
func (r *report) write(w io.Writer, paint style) error {
	p := &page{paint: paint}
	p.line("")
	p.line("%s orders from %s, each to be paid within %s, at %s times the speed: %s",
		thousands(r.cameIn()), printable(r.name), exact(r.window), times(r.speed), short(r.took))
	r.writeOrders(p)
	r.writeLedger(p)
	r.writeLateness(p)
	r.writeSpeed(p)
	r.writeWheel(p)
	p.verdict(r.interrupted, "Interrupted. The orders that were settled until then are all here.", r.problems())
	return p.writeTo(w)
}

func (r *report) writeOrders(p *page) {
	p.title("Orders")
	width := len(thousands(r.cameIn()))
	line := func(name string, n, of int64, note string) {
		p.line("  %s  %s  %s  %s %s", left(name, 16), right(thousands(n), width), right(percent(n, of), 7),
			p.paint.bar(left(bar(n, of, barWidth), barWidth)), p.paint.faint(note))
	}
	line("came in", r.cameIn(), r.cameIn(), "")
	line("  refused", r.refused, r.cameIn(), "too little in stock")
	line("  created", r.created, r.cameIn(), "stock held, one task each")
	line("    paid", r.paid, r.cameIn(), "task removed")
	line("    given back", r.givenBack, r.cameIn(), "task ran: not paid in time")
	line("      paid late", r.paidLate, r.cameIn(), "after the stock was given back")
	if r.held() > 0 {
		line("    still held", r.held(), r.cameIn(), "interrupted before they were settled")
	}
	if r.malformed > 0 {
		p.line("  %s  %s  %s", left("malformed lines", 16), right(thousands(r.malformed), width),
			p.paint.bad("skipped, see standard error"))
	}
}

func (r *report) writeLedger(p *page) {
	p.title("Ledger, in units of stock")
	rows := slices.Clone(r.rows)
	var all, others account
	for _, row := range rows {
		all = all.plus(row.account)
	}
	if len(rows) > shownSKUs+1 {
		for _, row := range rows[shownSKUs:] {
			others = others.plus(row.account)
		}
		rows = append(rows[:shownSKUs:shownSKUs], row{fmt.Sprintf("%d others", len(rows)-shownSKUs), others})
	}
	rows = append(rows[:len(rows):len(rows)], row{"all", all})
	name := 0
	for i, row := range rows {
		rows[i].sku = cut(printable(row.sku), skuWidth)
		name = max(name, utf8.RuneCountInString(rows[i].sku))
	}
	width := max(len("at the start"), len(thousands(all.start)))
	column := func(n int) string { return right(thousands(n), width) }
	p.line("  %s  %s   %s   %s   %s", spaces(name), right("at the start", width), right("sold", width),
		right("on the shelf", width), right("held", width))
	for _, row := range rows {
		p.line("  %s  %s = %s + %s + %s  %s", left(row.sku, name), column(row.start), column(row.sold),
			column(row.shelf), column(row.held), p.tick(row.balances()))
	}
}

func (r *report) writeLateness(p *page) {
	s := r.spread
	p.title("Lateness")
	if s.runs == 0 {
		p.line("  no task ran")
		return
	}
	p.line("  of %s runs, from the due time to the start of the job", thousands(s.runs))
	var most int64
	for _, b := range s.bands {
		most = max(most, b.runs)
	}
	width := len(thousands(most))
	for _, b := range s.bands {
		p.line("  %s  %s  %s  %s", right("≤ "+short(b.upTo), 9), right(thousands(b.runs), width),
			right(percent(b.runs, s.runs), 7), p.paint.bar(bar(b.runs, most, barWidth)))
	}
	early := p.paint.good("none was early")
	if s.early > 0 {
		early = p.paint.bad(thousands(s.early) + " were early")
	}
	p.line("  p50 %s   p99 %s   max %s   %s", short(s.p50), short(s.p99), short(s.max), early)
}

func (r *report) writeSpeed(p *page) {
	p.title("Speed and memory")
	line := func(name, value, note string) {
		p.line("  %s  %s  %s", left(name, 20), right(value, 9), p.paint.faint(note))
	}
	line("tasks a second", perSecond(r.created, r.took), "over the whole run")
	line("", perSecond(r.created, r.feeding), "while orders came in, for "+short(r.feeding))
	if r.found.busiest > 0 {
		line("", thousands(int64(r.found.busiest)), "in the busiest second")
	}
	line("behind the clock", short(r.lag), "the longest that an order or a payment waited for the machine")
	line("live tasks", thousands(r.found.peak), "at the peak")
	line("goroutines", thousands(r.found.goroutines), "at the peak, those of the Go runtime among them")
	if bytes, ok := r.found.perTask(); ok {
		line("heap per live task", size(bytes), fmt.Sprintf("%s for %s tasks: the wheel's part, the key,",
			size(r.found.heap), thousands(r.found.heapTasks)))
		rest := "the job, what the order holds, the payment to come"
		if r.keepsIDs {
			rest += ", and all ids that were read"
		}
		line("", "", rest)
		return
	}
	line("heap per live task", "–", "too few tasks to tell")
}

func perSecond(n int64, d time.Duration) string {
	if d <= 0 {
		return "–"
	}
	return thousands(int64(float64(n) / d.Seconds()))
}

func (r *report) writeWheel(p *page) {
	s := r.stats
	p.title(fmt.Sprintf("Wheel, %s slots of %s", thousands(r.slots), exact(r.tick)))
	p.line("  tasks  %s added = %s finished + %s removed + %s pending  %s",
		thousands(s.Added), thousands(s.Finished), thousands(s.Removed), thousands(s.Pending),
		p.tick(r.tasksBalance()))
	p.line("  runs   %s due = %s started + %s missed + %s waiting + %s withdrawn  %s",
		thousands(s.Due), thousands(s.Started), thousands(s.Missed), thousands(s.Waiting), thousands(s.Withdrawn),
		p.tick(r.runsBalance()))
	p.line("  both   what the wheel counts is what the shop counts  %s", p.tick(r.sidesAgree()))
}

// A page builds the text of a report.
type page struct {
	text  strings.Builder
	paint style
}

// line writes a line without trailing spaces.
func (p *page) line(format string, args ...any) {
	p.text.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

// verdict writes the end of a report.
func (p *page) verdict(interrupted bool, what string, problems []string) {
	p.line("")
	if interrupted {
		p.line("%s", what)
	}
	for _, problem := range problems {
		p.line("%s", p.paint.bad("✗ "+problem))
	}
	if len(problems) == 0 {
		p.line("%s", p.paint.good("Everything balances."))
	}
}

func (p *page) writeTo(w io.Writer) error {
	if _, err := io.WriteString(w, p.text.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (p *page) title(text string) { p.line("\n%s", p.paint.title(text)) }

// tick returns the mark that shows whether a sum balances.
func (p *page) tick(ok bool) string {
	if ok {
		return p.paint.good("✓")
	}
	return p.paint.bad("✗")
}
