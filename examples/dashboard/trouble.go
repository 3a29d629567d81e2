// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/examples/internal/buttons"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A trouble causes trouble when a button is pressed, to show how the dashboard reports it.
type trouble struct {
	tw      *timewheel.TimeWheel
	cluster *cluster
	post    *post

	mu   sync.Mutex // protects the fields below
	n    int        // number of tasks added so far
	free chan struct{}
}

const troubleForm = `<h1>Trouble for the wheel “orders”</h1>
<p><button name="make" value="jam">Jam all workers</button> for two minutes: due runs wait, and periods are missed
<p><button name="make" value="miss">Miss periods</button> by jamming all workers for three seconds
<p><button name="make" value="free">Free the workers</button>
<p><button name="make" value="panic">Panic</button> in five jobs
<p><button name="make" value="stop">Stop the wheel</button> for good
<h1>Trouble for the durable scheduler “payments”</h1>
<p><button name="make" value="fail">Let the payments fail</button> until they are parked
<p><button name="make" value="mend">Mend the payments</button>, and unpark them on the dashboard
<p><button name="make" value="forget">Forget a kind</button>: twelve tasks that no node handles
<p><button name="make" value="pause">Pause the payments</button>: what is due waits, and that is no alarm
<p><button name="make" value="resume">Resume the payments</button>
<p><button name="make" value="pause one">Pause one task</button>, a report: the others of its kind run
<p><button name="make" value="resume one">Resume the task</button>
<p><button name="make" value="rush">Send 500 mails at once</button>, of a kind that may start ten in a second
<p><button name="make" value="kill">Cut off the node web-2</button>: the other takes its tasks over
<p><button name="make" value="revive">Connect the node web-2</button> again
<p><button name="make" value="away">Take the engine away</button> for 20 seconds, and have a backlog then
<h1>Trouble for the durable scheduler “mails”</h1>
<p><button name="make" value="full">Fill the disk</button> of its engine, which ends it for good
<p><a href="../" target="dashboard">The dashboard</a>
`

// newTrouble returns the handler for the page with the buttons.
func newTrouble(tw *timewheel.TimeWheel, c *cluster, p *post) http.Handler {
	t := &trouble{tw: tw, cluster: c, post: p, free: make(chan struct{})}
	return buttons.Handler(func() string { return troubleForm }, t.make)
}

func (t *trouble) make(what string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch what {
	case "jam":
		t.addLocked("jammed", workers, t.jam(t.free, 2*time.Minute))
	case "miss":
		t.addLocked("jammed", workers, t.jam(t.free, 3*time.Second))
	case "free":
		close(t.free)
		t.free = make(chan struct{})
	case "panic":
		t.addLocked("trouble", 5, func(*timewheel.Task) { panic(errors.New("the warehouse does not answer")) })
	case "stop":
		t.tw.Stop()
	case "full":
		t.post.fill()
	default:
		if known, err := t.cluster.make(what); known {
			return err
		}
		return fmt.Errorf("there is no trouble %q", what)
	}
	return nil
}

// jam returns a job that blocks its worker for the given time, or until free is closed or the wheel stops.
func (t *trouble) jam(free <-chan struct{}, most time.Duration) timewheel.Job {
	return func(task *timewheel.Task) {
		select {
		case <-time.After(most):
		case <-free:
		case <-task.Context().Done():
		}
	}
}

// addLocked adds n tasks that are all due immediately.
func (t *trouble) addLocked(name string, n int, job timewheel.Job) {
	for range n {
		t.n++
		_ = t.tw.AddTask(&timewheel.Task{Key: fmt.Sprintf("%s-%04d", name, t.n), Delay: 1, Job: job})
	}
}
