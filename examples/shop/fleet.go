// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// A process is one process of the service.
type process struct {
	name string
	addr string
	cmd  *exec.Cmd
	in   io.Closer    // standard input of the process; closing it stops the process
	log  bytes.Buffer // standard error of the process; read it only after the process has ended
}

// print prints the address of the process's dashboard, and the process ID for killing the process manually.
func (p *process) print(out io.Writer) {
	fmt.Fprintf(out, "         %s, process %d, shows http://%s%s\n", p.name, p.cmd.Process.Pid, p.addr, page)
}

// A fleet is the set of processes of the service.
type fleet struct {
	config
	mu      sync.Mutex // protects the fields below
	live    []*process
	started int
}

// start starts a process and returns it once the process is serving.
func (f *fleet) start() (*process, error) {
	f.mu.Lock()
	f.started++
	p := &process{name: fmt.Sprint("node-", f.started)}
	f.mu.Unlock()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(self, "serve", "-until-eof", "-db", f.db, "-name", p.name, "-window", f.window.String(),
		"-lease", f.lease.String(), "-work", f.work.String())
	p.cmd.SysProcAttr = ownGroup() // the process exits when its standard input ends
	p.cmd.Stderr = &p.log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = p.cmd.Wait()
		return nil, fmt.Errorf("%s does not start: %s", p.name, p.log.String())
	}
	p.addr = strings.TrimSpace(line)
	f.mu.Lock()
	f.live = append(f.live, p)
	f.mu.Unlock()
	return p, nil
}

// pick returns the process at index n, modulo the number of processes.
func (f *fleet) pick(n int) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[n%len(f.live)]
}

// all returns all running processes.
func (f *fleet) all() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.live)
}

// any returns a random process, or nil if there are no processes left.
func (f *fleet) any() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.live) == 0 {
		return nil
	}
	return f.live[rand.IntN(len(f.live))]
}

// remove excludes the process from requests.
func (f *fleet) remove(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = slices.DeleteFunc(f.live, func(q *process) bool { return p == q })
}

// kill ends the process at once, like kill -9. Requests are still sent to the process until it has ended.
func (f *fleet) kill(p *process) {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // the error reports that the process was killed
	_ = p.in.Close()
	f.remove(p)
}

// stop shuts the process down gracefully. An error contains its log.
func (f *fleet) stop(p *process) error {
	f.remove(p)
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.name, err, p.log.String())
	}
	return nil
}

// stopAll stops all processes.
func (f *fleet) stopAll() (err error) {
	for p := f.any(); p != nil; p = f.any() {
		if e := f.stop(p); err == nil {
			err = e
		}
	}
	return err
}
