// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// ownAndOther adds tasks that have their keys in their errors, payloads, groups and histories.
func (r *rig) ownAndOther() {
	r.Helper()
	r.with(func(s *durable.Scheduler) {
		park := func(_ context.Context, run durable.Run) error {
			return durable.Park(errors.New("the failure of " + run.Key))
		}
		for _, kind := range []string{"mine", "other"} {
			check(r.T, s.Handle(kind, park, durable.WithHistory(10, time.Hour)))
		}
		check(r.T, s.Start())
		for key, kind := range map[string]string{"own:1": "mine", "own:2": "mine", "own:3": "other", "else:1": "mine", "else:2": "other", "else:3": "other"} {
			task := durable.Task{Key: key, Kind: kind, Payload: []byte("of " + key), Group: "of " + key}
			if strings.HasSuffix(key, "2") {
				task.At = now
			}
			check(r.T, s.AddTask(r.Context(), task))
		}
		for parked := 0; parked < 4; {
			n, err := s.Bulk(r.Context(), durable.Query{State: durable.Parked}, durable.DoNothing)
			check(r.T, err)
			parked = n
		}
	})
}

// ofLimited has command lines for each command that works over -url. The first one of a command succeeds, unless the command is
// about the whole.
var ofLimited = map[string]struct {
	lines   []string
	whole   bool // it is refused
	allKeys bool // it is refused if prefixes are limited
}{
	"ls": {lines: []string{"-all -kind mine -prefix own:", "-all", "-all -json", "-prefix else: -all", "-kind other -all", "-kind mine -limit 1",
		"-failure failure -all", "-state parked -all", "-all -group of", "-kind mine -prefix own: -after a2Vsc2U6Mg", "-kind mine -after ZAAAAAAAAAAAZWxzZTozAA"}},
	"show": {lines: []string{"own:1", "else:1", "else:2 own:1 own:3", "-json own:1 else:3", "-payload else:3", "own:3"}},
	"history": {lines: []string{"-kind mine -prefix own:", "", "-json", "-kind other", "-prefix else:", "own:1", "else:1", "else:3", "own:3",
		"-kind mine else:3", "-kind mine -limit 1", "-outcome parked -kind mine"}},
	"failures":    {lines: []string{"", "-json"}, allKeys: true},
	"stats":       {lines: []string{"", "-json", "-by group", "-by group -kind mine -prefix own:"}, whole: true},
	"schedules":   {lines: []string{"", "-json"}, whole: true},
	"nodes":       {lines: []string{"", "-json"}, whole: true},
	"tune":        {lines: []string{"", "-json", "-pool-size 3", "-catch-up 3", "-kind mine -reset", "-kind mine -concurrency 1"}, whole: true},
	"drain":       {lines: []string{"x", "-wait x"}, whole: true},
	"undrain":     {lines: []string{"x"}, whole: true},
	"run-now":     {lines: changes},
	"reschedule":  {lines: append(with("-in 1h ", changes), with("-over 1h ", changes)...)},
	"unpark":      {lines: changes},
	"pause":       {lines: changes},
	"resume":      {lines: changes},
	"cancel":      {lines: changes},
	"rm":          {lines: append(with("", changes), with("-wait 5s ", []string{"else:1", "else:2 else:3", "own:3 own:2"})...)},
	"pause-kind":  {lines: []string{"mine", "other", "mine other", "-all", "-all -yes", "nothing", "-json mine"}, allKeys: true},
	"resume-kind": {lines: []string{"mine", "other", "mine other", "-all", "-all -yes", "nothing", "-json mine"}, allKeys: true},
}

// changes are arguments of commands that change tasks.
var changes = []string{
	"-kind mine -prefix own: -yes", "-all", "-all -yes", "-prefix else: -yes", "-prefix e -yes", "-kind other -yes", "-kind other -prefix own: -yes",
	"-failure failure -yes", "-group of -yes", "else:1", "else:2 else:3", "own:3 else:1", "none", "else:none", "own:none", "-json -kind mine -yes",
}

func with(before string, lines []string) (all []string) {
	for _, line := range lines {
		all = append(all, before+line)
	}
	return all
}

var pausedOther = regexp.MustCompile(`(?m)^Kind other is paused, .*, by ann\.$`)

var countOfTasks = regexp.MustCompile(`([0-9]+) (?:failing )?tasks?`)

// An operator whose right is limited sees and changes only the tasks of its prefixes and kinds, with any command.
func TestLimitedOperator_reachesOnlyItsTasks(t *testing.T) {
	for name, c := range map[string]struct {
		limits   string
		own      []string
		hidden   []string // parts of outputs
		prefixes bool     // are limited
	}{
		"prefixes": {`"prefixes": ["own:"]`, []string{"own:1", "own:2", "own:3"}, []string{"else:"}, true},
		"kinds":    {`"kinds": ["mine"]`, []string{"own:1", "own:2", "else:1"}, []string{"own:3", "else:2", "else:3", "other"}, false},
		"both":     {`"prefixes": ["own:"], "kinds": ["mine"]`, []string{"own:1", "own:2"}, []string{"own:3", "else:", "other"}, true},
		"several":  {`"prefixes": ["own:1", "own:2"], "kinds": ["mine", "*"]`, []string{"own:1", "own:2"}, []string{"own:3", "else:"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServing(t, `{"name": "bob", "token": "`+bobsToken+`", "rights": ["operate"], `+c.limits+`}`)
			s.ownAndOther()
			ann := s.place
			bob := []string{ann[0], ann[1], ann[2], s.token(bobsToken)}
			others := func() string {
				s.place = ann
				keys := slices.DeleteFunc([]string{"own:1", "own:2", "own:3", "else:1", "else:2", "else:3"}, func(key string) bool {
					return slices.Contains(c.own, key)
				})
				return s.must("show", append([]string{"-json"}, keys...)...) + s.must("tune") + fmt.Sprint(pausedOther.MatchString(s.must("stats")))
			}
			s.must("pause-kind", "other")
			before := others()
			for _, command := range commands() {
				of, is := ofLimited[command.name]
				if is != command.isRemote() {
					t.Errorf("%s works over -url: %v, and has lines for this test: %v", command.name, command.isRemote(), is)
				}
				for i, line := range of.lines {
					s.place = bob
					got := s.do(command.name, strings.Fields(line)...)
					if name == "several" && i == 0 {
						got = s.do(command.name, strings.Fields(strings.ReplaceAll(line, "-prefix own:", "-prefix own:1"))...)
					}
					refused := of.whole || of.allKeys && c.prefixes
					switch says := got.out + got.err; {
					case i == 0 && got.code != done && !refused:
						t.Errorf("%s %s: %+v", command.name, line, got)
					case refused && (got.code == done || got.out != "" || i == 0 && !strings.Contains(says, "the token is limited to some")):
						t.Errorf("%s %s: %+v, want it refused", command.name, line, got)
					}
					s.mayShow(command.name+" "+line, got, c.hidden, len(c.own))
				}
				if after := others(); after != before {
					t.Fatalf("%s changes the others to\n%s\nfrom\n%s", command.name, after, before)
				}
			}
			s.place = ann
			if got := s.must("ls", "-all", "-json"); slices.ContainsFunc(c.own, func(key string) bool { return strings.Contains(got, key) }) {
				t.Errorf("after rm there are\n%s", got)
			}
		})
	}
}

// mayShow checks that the outcome of a command has nothing hidden but arguments, and does not count more tasks.
func (r *rig) mayShow(line string, got result, hidden []string, most int) {
	r.Helper()
	says := got.out + got.err
	for _, arg := range strings.Fields(line) {
		for _, sentence := range []string{
			"task key not found: $", "left alone: the token has no right to key $", "the token has no right to kind $", `no task has kind $`,
		} {
			says = strings.ReplaceAll(says, strings.ReplaceAll(sentence, "$", arg), "")
		}
	}
	for _, text := range hidden {
		if strings.Contains(says, text) {
			r.Errorf("%s: it shows %q: %+v", line, text, got)
		}
	}
	for _, n := range countOfTasks.FindAllStringSubmatch(says, -1) {
		if n, err := strconv.Atoi(n[1]); err != nil || n > most {
			r.Errorf("%s: it counts %d tasks, and the operator has %d: %+v", line, n, most, got)
		}
	}
}
