// SPDX-License-Identifier: MIT

package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const (
	// CommandPath is the path for commands on the address of operators.
	CommandPath = "/command"

	// CommandType is the content type of the answer to a command.
	CommandType = "application/x-ndjson"

	mostCommands = 8    // that run at once
	mostOfOne    = 4    // of them, of one token
	mostArgs     = 1000 // of a command

	frameLimit = 30 * time.Second // for a client to take a frame
	mostFrame  = 32 << 10         // bytes of output in one frame, so that a slow client takes it in time
)

// A CommandLine is a command of an operator. It is the body of a request, in JSON.
type CommandLine struct {
	Args    []string `json:"args"`
	Width   int      `json:"width"`   // columns of the terminal at the output; 0 if there is none
	Watched bool     `json:"watched"` // the error output is a terminal
	Zone    string   `json:"zone"`    // name of the operator's time zone at this time
	Offset  int      `json:"offset"`  // seconds of that zone east of UTC
	Who     string   `json:"who"`     // the user, who is believed only if the service has no tokens of operators
}

// A Frame is a part of the answer to a command, in JSON on a line of its own. It has one of the fields. The last frame has
// the exit code. The outputs are in base64, because keys and payloads may be any bytes.
type Frame struct {
	Out  []byte `json:"out,omitempty"`
	Err  []byte `json:"err,omitempty"`
	Ask  string `json:"ask,omitempty"` // a question: the command does nothing unless it is sent again with -yes
	Exit *int   `json:"exit,omitempty"`
}

// A Call is a command that the service runs for an operator.
type Call struct {
	Args     []string
	Out, Err io.Writer
	Ask      func(question string) // the client asks, and may send the command again
	Width    int
	Watched  bool
	Zone     *time.Location
	Who      string       // the operator
	Prefixes []string     // of the keys to which the operator has a right; nil is all
	Kinds    []string     // to which the operator has a right; nil is all
	Log      *slog.Logger // of the service, with the operator
}

// A Commander runs a command on the scheduler of the service, and returns the exit code. It is called concurrently.
type Commander func(ctx context.Context, s *durable.Scheduler, c Call) int

// command returns the handler of commands. It sends the outputs while a command runs, and cancels a command whose client
// has gone.
func (srv *Server) command(run Commander) http.Handler {
	running := commands{by: make(map[string]int)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Browsers add these headers to every POST request of a web page. Programs do not.
		if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
			http.Error(w, "commands are for programs, not for a page in a browser", http.StatusForbidden)
			return
		}
		o, err := srv.allow(r, mayOperate)
		if err != nil { // since a reload a moment ago
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		line, err := readCommand(r)
		if err != nil {
			p := problemOf(err)
			http.Error(w, p.Detail, p.Status)
			return
		}
		leave, err := running.enter(o.Name)
		if err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer leave()
		w.Header().Set("Content-Type", CommandType)
		f := &frames{json.NewEncoder(w), http.NewResponseController(w)}
		_ = f.control.Flush() // the first output may come much later
		who := cmp.Or(o.Name, line.Who)
		code := run(r.Context(), srv.s, Call{
			Args: line.Args, Width: line.Width, Watched: line.Watched, Zone: time.FixedZone(line.Zone, line.Offset),
			Out: output(func(b []byte) error { return f.write(Frame{Out: b}) }),
			Err: output(func(b []byte) error { return f.write(Frame{Err: b}) }),
			Ask: func(question string) { _ = f.write(Frame{Ask: question}) },
			Who: who, Prefixes: o.prefixes(), Kinds: o.kinds(), Log: srv.log.With("operator", who),
		})
		_ = f.write(Frame{Exit: &code})
	})
}

// commands counts the commands that run.
type commands struct {
	mu  sync.Mutex
	all int            // guarded by mu
	by  map[string]int // by operator; guarded by mu
}

// enter takes a place for a command of the operator, and returns a function that leaves it.
func (c *commands) enter(operator string) (leave func(), _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.all == mostCommands:
		return nil, fmt.Errorf("%d commands are running; try again later", mostCommands)
	case operator != "" && c.by[operator] == mostOfOne: // without tokens there is one operator
		return nil, fmt.Errorf("%d commands of %s are running; try again later", mostOfOne, operator)
	}
	c.all++
	c.by[operator]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		if c.by[operator]--; c.by[operator] == 0 {
			delete(c.by, operator)
		}
	}, nil
}

func readCommand(r *http.Request) (line CommandLine, err error) {
	text, err := readBody(r, "application/json", mostBody)
	if err != nil {
		return line, err
	}
	wrong := decode(text, &line)
	if n := len(line.Args); n > mostArgs {
		wrong.add("args", "", "has %d arguments; at most %d are allowed", n, mostArgs)
	}
	return line, wrong.problem()
}

// frames is the answer to a command. Every frame is sent at once. A client that does not take one in time is cut off.
type frames struct {
	to      *json.Encoder
	control *http.ResponseController
}

func (f *frames) write(one Frame) error {
	if err := f.control.SetWriteDeadline(time.Now().Add(frameLimit)); err != nil {
		return err
	}
	if err := f.to.Encode(one); err != nil {
		return err
	}
	return f.control.Flush()
}

// An output is a writer that sends each text in frames.
type output func(b []byte) error

func (o output) Write(b []byte) (n int, err error) {
	for part := range slices.Chunk(b, mostFrame) {
		if err := o(part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// limits checks to which tasks the operator is limited.
func (k *checker) limits(field string, o *Operator) {
	if o.Prefixes == nil && o.Kinds == nil {
		return
	}
	for i, right := range o.Rights {
		if right != mayOperate {
			k.wrong(fmt.Sprintf("%s.rights[%d]", field, i), "%s is for all tasks, so a token with prefixes or kinds may only have %s", right, mayOperate)
		}
	}
	if o.Prefixes != nil && len(o.Prefixes) == 0 {
		k.wrong(field+".prefixes", "none are given; without the field all keys are allowed")
	}
	if o.Kinds != nil && len(o.Kinds) == 0 {
		k.wrong(field+".kinds", "none are given; without the field all kinds are allowed")
	}
	k.prefixes(field+".prefixes", o.Prefixes)
	k.kinds(field+".kinds", o.Kinds)
}

// prefixes returns the prefixes of the keys to which the operator has a right. nil is all.
func (o *Operator) prefixes() []string {
	if slices.Contains(o.Prefixes, "") {
		return nil
	}
	return o.Prefixes
}

// kinds returns the kinds to which the operator has a right. nil is all.
func (o *Operator) kinds() []string {
	if slices.Contains(o.Kinds, "*") {
		return nil
	}
	return o.Kinds
}
