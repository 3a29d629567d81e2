// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// A promServer is a Prometheus server in a separate process. It scrapes the processes of a scene and evaluates the
// rules, including how long an alert must last.
type promServer struct {
	addr    string
	targets string // the path of the file with the scraped addresses
	written string // its contents
	cmd     *exec.Cmd
	log     bytes.Buffer
	ended   chan struct{} // closed when it has ended
}

const prometheusConfig = `
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: [%q]
scrape_configs:
  - job_name: %s
    file_sd_configs:
      - files: [%q]
        refresh_interval: 1s
`

// startPrometheus starts the program. The caller must call stop.
func startPrometheus(program, dir, rules string) (*promServer, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &promServer{addr: free.Addr().String(), targets: filepath.Join(dir, "targets.json"), ended: make(chan struct{})}
	if err := free.Close(); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, prometheusConfig, rules, source, p.targets), 0o600); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.addr)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the server.
func (p *promServer) stop() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// scrape makes the server scrape exactly these processes.
func (p *promServer) scrape(all []*process) error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := []group{}
	for _, q := range all {
		groups = append(groups, group{[]string{q.addr}, map[string]string{"instance": q.Name}})
	}
	text, err := json.Marshal(groups)
	if err != nil || string(text) == p.written {
		return err
	}
	if err := os.WriteFile(p.targets+".new", text, 0o600); err != nil {
		return err
	}
	p.written = string(text)
	return os.Rename(p.targets+".new", p.targets)
}

// firing returns the names of the firing alerts.
func (p *promServer) firing(ctx context.Context, s *scene) ([]string, error) {
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
	}
	if err := s.get(ctx, "http://"+p.addr+"/api/v1/alerts", &answer); err != nil {
		select {
		case <-p.ended:
			return nil, fmt.Errorf("the Prometheus server has ended: %s", p.log.String())
		default:
			return nil, err
		}
	}
	var all []string
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			all = append(all, a.Labels["alertname"])
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// longestFor is longer than any alert of the table must last before it fires.
const longestFor = 5 * time.Minute

// untilFiring waits until all wanted alerts fire in Prometheus, if there is one, and no others except the allowed ones.
func (s *scene) untilFiring(ctx context.Context, want, may []string, limit time.Duration, r *result) error {
	if s.prom == nil {
		return nil
	}
	for deadline := time.Now().Add(limit); ; {
		got, err := s.prom.firing(ctx, s)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(a string) bool { return slices.Contains(got, a) })
		untrue := slices.DeleteFunc(slices.Clone(got), func(a string) bool {
			return slices.Contains(want, a) || slices.Contains(may, a)
		})
		if len(missing)+len(untrue) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			r.fail("in Prometheus fire %q, not %q", got, want)
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}
