// SPDX-License-Identifier: MIT

// Package rounds measures cases of peers in rounds, each in a separate process, for the benchmarks of packages durable
// and durable/postgres.
package rounds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Choose returns the names in the comma-separated list asked, or all names if it is empty.
func Choose(what, asked string, names []string) ([]string, error) {
	if asked == "" {
		return names, nil
	}
	want := strings.Split(asked, ",")
	for _, name := range want {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("unknown %s %q; there are: %s", what, name, strings.Join(names, ", "))
		}
	}
	return want, nil
}

// A Sample contains the figures of one process, by name, or the reason why it has none.
type Sample struct {
	Round      int
	Case, Peer string
	Figures    map[string]float64
	Failure    string
}

// A Plan says which samples to take.
type Plan struct {
	Rounds       int
	Cases, Peers []string
	Applies      func(c, p string) bool // whether the peer has the case

	// Kept is a file that keeps the samples, one JSON document a line, or "". A program that was interrupted continues with
	// the same file, and takes only samples that are missing in it or have failed. It must be of the same revision and machine.
	Kept string
}

// Measure calls measure for each case in each round, with each peer to which the case applies, and reports its progress
// on the standard error. The peers of a case run one after another, and each round begins with another peer.
func (plan Plan) Measure(measure func(c, p string) Sample) (samples []Sample, err error) {
	had, keep, err := plan.kept()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, keep.Close()) }()
	for round := range plan.Rounds {
		for _, c := range plan.Cases {
			for i := range plan.Peers {
				p := plan.Peers[(i+round)%len(plan.Peers)]
				if !plan.Applies(c, p) {
					continue
				}
				if s, ok := had[place{round, c, p}]; ok {
					samples = append(samples, s)
					continue
				}
				began := time.Now()
				s := measure(c, p)
				s.Round, s.Case, s.Peer = round, c, p
				samples = append(samples, s)
				if err := json.NewEncoder(keep).Encode(s); err != nil {
					return nil, err
				}
				fmt.Fprintf(os.Stderr, "round %d, %s, %s: %s %s\n", round+1, c, p,
					time.Since(began).Round(100*time.Millisecond), s.Failure)
			}
		}
	}
	return samples, nil
}

// Arguments returns the arguments of the program for a report. It leaves out -kept, which changes no figure.
func Arguments() string { return withoutKept(os.Args[1:]) }

func withoutKept(args []string) string {
	var others []string
	for i := 0; i < len(args); i++ {
		switch flag := strings.TrimPrefix(strings.TrimPrefix(args[i], "-"), "-"); {
		case args[i] != flag && flag == "kept":
			i++ // the file
		case args[i] != flag && strings.HasPrefix(flag, "kept="):
		default:
			others = append(others, args[i])
		}
	}
	return strings.Join(others, " ")
}

// A place is the place of a sample in a plan.
type place struct {
	round      int
	ofCase, by string
}

// kept returns the samples in the file that have not failed, and a file that takes more.
func (plan Plan) kept() (had map[place]Sample, keep *os.File, err error) {
	if plan.Kept == "" {
		keep, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		return nil, keep, err
	}
	text, err := os.ReadFile(plan.Kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	had = make(map[place]Sample)
	for line := range bytes.Lines(text) {
		var s Sample
		if json.Unmarshal(line, &s) == nil && s.Failure == "" { // the last line may be half written
			had[place{s.Round, s.Case, s.Peer}] = s
		}
	}
	if keep, err = os.OpenFile(plan.Kept, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err == nil && len(text) > 0 {
		_, err = keep.WriteString("\n") // ends such a line
	}
	return had, keep, err
}

// InChild runs this program again with the arguments. The child must print its figures as JSON, and is killed after the
// limit.
func InChild(limit time.Duration, args ...string) (s Sample) {
	cmd := exec.Command(os.Args[0], args...)
	var failure strings.Builder
	cmd.Stderr = &failure
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	printed, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(printed, &s.Figures)
	}
	if err != nil {
		s.Failure = strings.Join(strings.Fields(err.Error()+": "+failure.String()), " ")
	}
	return s
}

// Collect returns the values of each figure over the rounds, by case/peer and name, and the reasons for missing ones.
func Collect(samples []Sample) (values map[string]map[string][]float64, failures []string) {
	values = map[string]map[string][]float64{}
	for _, s := range samples {
		id := s.Case + "/" + s.Peer
		if s.Failure != "" {
			failures = append(failures, fmt.Sprintf("%s, round %d: %s", id, s.Round+1, s.Failure))
			continue
		}
		if values[id] == nil {
			values[id] = map[string][]float64{}
		}
		for name, v := range s.Figures {
			values[id][name] = append(values[id][name], v)
		}
	}
	return values, failures
}

// Of returns the number of rounds of the samples.
func Of(samples []Sample) (n int) {
	for _, s := range samples {
		n = max(n, s.Round+1)
	}
	return n
}

// Median returns the median of the values. There must be at least one.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Revision returns the measured commit, marked if there are changes on top of it. Files that the benchmarks write do
// not count as changes: another benchmark may have run before.
func Revision() string {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed := exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)bench/*.md", ":(top,exclude)bench/plots")
	if changed.Run() != nil {
		return strings.TrimSpace(string(commit)) + ", with changes that are not committed"
	}
	return strings.TrimSpace(string(commit))
}

// Failed returns an error if some measurements failed. The report lists them.
func Failed(failures []string) error {
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("%d measurements have failed: the report ends with them", len(failures))
}

// Thousands formats a number with commas between thousands.
func Thousands(n int) string {
	if n < 0 {
		return "-" + Thousands(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Thousands(n/1000), n%1000)
}

// CPU returns the name of the processor, or "unknown".
func CPU() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // without it the name is unknown
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "unknown"
}

// Versions returns the versions of the given modules in this program.
func Versions(modules ...string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	var all []string
	for _, m := range info.Deps {
		if slices.Contains(modules, m.Path) {
			all = append(all, m.Path+" "+m.Version)
		}
	}
	return strings.Join(all, ", ")
}
