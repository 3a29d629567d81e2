// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"
)

// An order contains the settings of a node.
type order struct {
	Peer, URL, Name string
	Ledger          string        // the file for the record of runs
	Lease           time.Duration // lease of the member, for peers that have one
	Work            time.Duration // how long a handler sleeps
	Profile         string        // the file for its CPU profile, or empty
}

// ready is the line that a node prints when it accepts tasks.
const ready = "ready"

// runNode is the process of a node. SIGTERM stops it gracefully, and the end of its standard input stops it at once.
func runNode(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if o.Profile != "" {
		f, err := os.Create(o.Profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	l, err := createLedger(o.Ledger)
	if err != nil {
		return err
	}
	handle := func(payload []byte) {
		id := idOf(payload)
		err := l.note(event{id, time.Now(), false})
		time.Sleep(o.Work)
		if err = errors.Join(err, l.note(event{id, time.Now(), true})); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) // a ledger with gaps is worse than none
		}
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	stop, err := peers[o.Peer].start(context.Background(), o.URL, o.Name, o.Lease, handle)
	if err != nil {
		return err
	}
	fmt.Println(ready)
	left := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(left)
	}()
	select {
	case <-stopped:
		return stop()
	case <-left:
		return nil
	}
}

// A node is a process that runs tasks.
type node struct {
	order
	cmd  *exec.Cmd
	life io.Closer // its standard input
	once sync.Once
	err  error // the error of its end, after once
}

// startNode starts a node and returns when it is ready.
func startNode(o order) (*node, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	n := &node{order: o, cmd: exec.Command(os.Args[0], "-node", string(text))}
	n.cmd.Stderr = os.Stderr
	if n.life, err = n.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != ready+"\n" {
		return nil, fmt.Errorf("node %s is not ready: %w", o.Name, errors.Join(err, n.kill()))
	}
	return n, nil
}

// stop ends the node gracefully.
func (n *node) stop() error {
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended, as Wait reports
	return n.wait()
}

// kill ends the node at once, and does not fail if it has already ended.
func (n *node) kill() error {
	if err := n.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = n.wait() // the error says that it was killed
	return nil
}

func (n *node) wait() error {
	n.once.Do(func() { n.err = errors.Join(n.cmd.Wait(), ignoreClosed(n.life.Close())) })
	return n.err
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// A cluster consists of the nodes of a measurement.
type cluster struct {
	dir   string
	nodes []*node
}

// startCluster starts n nodes of a peer.
func startCluster(n int, peerName, url string, lease, work time.Duration) (*cluster, error) {
	dir, err := os.MkdirTemp("", "cluster-bench-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		profile := ""
		if profiles != "" {
			profile = profiles + "-" + name + ".pprof"
		}
		started, err := startNode(order{peerName, url, name, filepath.Join(dir, name), lease, work, profile})
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.nodes = append(c.nodes, started)
	}
	return c, nil
}

func (c *cluster) ledgers() (names []string) {
	for _, n := range c.nodes {
		names = append(names, n.Ledger)
	}
	return names
}

// await returns when n runs have started and ended, or at the given time. It must use little CPU.
func (c *cluster) await(n int, until time.Time) error {
	for {
		events, err := c.events()
		if err != nil || events >= 2*n || time.Now().After(until) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// events returns how many starts and ends of runs the nodes have recorded.
func (c *cluster) events() (n int, err error) {
	for _, name := range c.ledgers() {
		f, err := os.Open(name)
		if err != nil {
			return 0, err
		}
		in, err := countEvents(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return 0, err
		}
		n += int(in)
	}
	return n, nil
}

// cpu returns the CPU time used by the running nodes.
func (c *cluster) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, n := range c.nodes {
		used, err := cpuOf(n.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += used.own
	}
	return sum, nil
}

// close ends the nodes, at once unless they have a profile to write.
func (c *cluster) close() error {
	var err error
	for _, n := range c.nodes {
		if n.Profile != "" && n.cmd.ProcessState == nil {
			err = errors.Join(err, n.stop())
		}
		err = errors.Join(err, n.kill())
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}
