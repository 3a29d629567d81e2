// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// sizes are the sizes of the measurements.
type sizes struct {
	live     int           // tasks that exist before adds are measured
	adds     int           // number of measured adds
	due      int           // tasks due at once
	far      int           // tasks for measuring the open and the memory
	rate     int           // tasks due per second
	duration time.Duration // duration of that rate, and of repeated single operations
}

var (
	full  = sizes{live: 1_000_000, adds: 500_000, due: 500_000, far: 5_000_000, rate: 10_000, duration: 10 * time.Second}
	tenth = sizes{live: 100_000, adds: 50_000, due: 50_000, far: 500_000, rate: 10_000, duration: 2 * time.Second}
)

// A measurement returns figures by name.
type measurement func(size sizes, dir string) (map[string]float64, error)

const (
	ours   = "durable"
	own    = "durable, own engine in memory"
	shared = "durable, shared engine in memory"
	free   = "durable, no limit"
	raw    = "pebble"
	disk   = "disk"
	redis  = "asynq"
	pg     = "river"
)

func peerNames() []string {
	return []string{ours, own, shared, free, raw, disk, redis, pg}
}

// cases are the measurements by case and peer.
var cases = map[string]map[string]measurement{
	"add-one":   {ours: oursAddOne, raw: pebbleAddOne, disk: diskAddOne},
	"add-1024":  {ours: oursAddMany, raw: pebbleAddMany, redis: asynqAddMany, pg: riverAddMany},
	"add-batch": {ours: oursAddBatch, raw: pebbleAddBatch, pg: riverAddBatch},
	"remove":    {ours: oursRemove, redis: asynqRemove, pg: riverRemove},
	"run":       {ours: oursRun},
	"set-one":   onEach(setOne),
	"idle":      onEach(idle),
	"add-heap":  onEach(addAllocs),
	"run-heap":  onEach(runAllocs),
	"open":      {ours: oursOpen},
	"lateness":  {ours: oursLateness, redis: asynqLateness, pg: riverLateness},
	"crowd":     {ours: limitedCrowd, free: unlimitedCrowd},
}

func caseNames() []string {
	return []string{"add-one", "add-1024", "add-batch", "remove", "run", "open", "lateness", "crowd", "set-one", "idle", "add-heap", "run-heap"}
}

func applies(c, p string) bool { return cases[c][p] != nil }

const (
	callers   = 1024
	batch     = 1000
	batchers  = 2
	recordLen = 100 // bytes of a payload
)

func key(i int) string { return fmt.Sprintf("order:%010d", i) }

// quantile returns the q quantile of sorted.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

// resident returns the resident memory of this process in MB.
func resident() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kb, err := strconv.Atoi(fields[1])
			return float64(kb) / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS")
}
