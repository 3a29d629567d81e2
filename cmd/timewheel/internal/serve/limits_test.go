// SPDX-License-Identifier: MIT

package serve

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
)

// Each limit of a kind lets two of five due tasks begin, and the others wait for it. The scheduler holds no more of them
// than may run, because the runs are slow.
func TestLimits_ofTheConfiguration_areInForce(t *testing.T) {
	for limit, rate := range map[string]bool{
		`"concurrency": 2`: false, `"cluster_concurrency": 2`: false,
		`"rate": {"runs": 1, "per": "100h", "burst": 2}`:         true,
		`"cluster_rate": {"runs": 1, "per": "100h", "burst": 2}`: true,
	} {
		t.Run(limit, func(t *testing.T) {
			const most, tasks = 2, 5
			var calls, now atomic.Int32
			end := make(chan bool)
			release := sync.OnceFunc(func() { close(end) })
			at := receiver(t, func(http.ResponseWriter, *http.Request) {
				calls.Add(1)
				if n := now.Add(1); n > most {
					t.Errorf("%d requests are in progress", n)
				}
				<-end
				now.Add(-1)
			})
			// The workers of the other kind do not help.
			r := start(t, config(t, at, `{"listen": "127.0.0.1:0", "kinds": {
				"k": {`+local+`, "timeout": "1h", `+limit+`}, "l": {`+local+`}}}`))
			t.Cleanup(release) // before the service is stopped
			for i := range tasks {
				r.must(204, "PUT", "/tasks/"+keyOf("a", i), `{"kind": "k"}`)
			}
			var k durable.KindInfo
			until(t, "the others wait", func() bool { k = r.srv.s.Kinds()[0]; return k.Running == most && k.Waiting >= most })
			release()
			if rate {
				until(t, "the first have ended", func() bool { return r.srv.s.Len() == tasks-most })
				equal(t, "the number of calls", calls.Load(), most)
				return
			}
			until(t, "all have ended", func() bool { return r.srv.s.Len() == 0 })
			equal(t, "the number of calls", calls.Load(), tasks)
		})
	}
}
