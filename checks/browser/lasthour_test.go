// SPDX-License-Identifier: MIT

package browser

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// putHour writes the note of a process that has ended half an hour ago without a word. In each of its last 20 minutes it had 10 runs
// of the kind and more and more overdue tasks, and in the last two, failures.
func putHour(t *testing.T, on engine.Engine, node, kind string) {
	t.Helper()
	last := time.Now().Unix()/60 - 30
	var minutes [][4]int
	for ago := 20; ago >= 0; ago-- {
		minutes = append(minutes, [4]int{ago, 10, max(2-ago, 0) * 3, 20 - ago})
	}
	data, err := json.Marshal(map[string]any{
		"version": 1, "minute": last, "node": node, "started": (last - 20) * int64(time.Minute),
		"kinds": []any{map[string]any{"name": []byte(kind), "minutes": minutes}},
	})
	must(t, err)
	note := engine.Write{Record: engine.Record{Key: "hour/of " + kind, Data: data}, Note: true, If: engine.Always}
	_, err = on.Commit(t.Context(), 0, []engine.Batch{{note}})
	must(t, err)
}

// After a restart the charts of the last hour have the minutes before it, of all nodes or of one, with marks.
func TestScheduler_lastHour_outlivesARestart(t *testing.T) {
	shared := memory.New().Shared()
	putHour(t, shared, "shop-2", "export")
	before, _ := newNode(t, shared, "shop-1")
	must(t, before.Handle("mail", works), before.Start(), before.AddTask(t.Context(), durable.Task{Key: "a", Kind: "mail"}, durable.Task{Key: "b", Kind: "mail"}))
	for before.Stats().Succeeded < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	must(t, before.Shutdown(t.Context()))

	s, source := newNode(t, shared, "shop-1")
	must(t, s.Handle("mail", works)) // it is not started: a minute later its start would be there, too
	address := serve(t, dashboard.Handler([]dashboard.Source{source}))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`page.live && !$("hour-card").hidden && document.querySelectorAll("#hour-kinds li").length === 2`)
	chart := func(i int) string {
		return js[string](p, fmt.Sprintf(`document.querySelectorAll("#hour-kinds svg")[%d].getAttribute("aria-label").replaceAll(/\d\d:\d\d/g, "TIME")`, i))
	}
	const export = "Kind export, by minute from TIME to TIME: 219 attempts, at most 16 a minute; 9 failed, the last at TIME; at most 20 overdue at TIME"
	if got := chart(0); got != export {
		t.Errorf("the first chart is %q, want %q", got, export)
	}
	const mail = "Kind mail, by minute from TIME to TIME: 2 attempts, at most 2 a minute; none failed; overdue tasks are not known"
	if got := chart(1); got != mail {
		t.Errorf("the second chart is %q, want %q", got, mail)
	}
	p.until(`document.querySelectorAll("#hour-kinds li:first-child .mark").length === 3 && document.querySelector("#hour-kinds .mark.ended title").textContent.startsWith("shop-1 ended at ")`)
	p.until(`/^Started: shop-2 at \S+, shop-1 at \S+. Ended: shop-1 at \S+.$/.test($("hour-marks").textContent)`)
	p.picture("last-hour")

	js[any](p, `$("hour-node").focus(), null`)
	p.do(chromedp.KeyEvent(kb.ArrowDown)) // which chooses the next one
	p.until(`$("hour-node").value === "shop-1" && document.querySelectorAll("#hour-kinds li").length === 1`)
	if got := chart(0); got != mail {
		t.Errorf("of one node the chart is %q, want %q", got, mail)
	}
	p.quiet(address)
}
