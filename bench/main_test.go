// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// mainVariable makes a process of the test binary run the program itself.
const mainVariable = "TIMEWHEEL_BENCH_TEST_MAIN"

// TestMain lets the test binary act as the program, and as the child processes of the tests.
func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(readersVariable); ok {
		main()
		return
	}
	if text, ok := os.LookupEnv(childVariable); ok {
		testChild(text)
		return
	}
	if _, ok := os.LookupEnv(mainVariable); ok {
		main()
		return
	}
	os.Exit(m.Run())
}

// testChild is a child process that hangs, crashes or prints other lines before its figures, if the test asks for it.
func testChild(text string) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic(err)
	}
	switch j.Case {
	case "hang":
		select {}
	case "crash":
		panic("the wheel came off")
	case "mute":
		return
	case "chatter":
		os.Stdout.WriteString("{\"level\":\"info\"}\nready\n{\"ns\":12.5}\n")
		return
	}
	if err := childMain(text, os.Stdout); err != nil {
		panic(err)
	}
}

func TestParseOptions_unknownNames_listTheValidOnes(t *testing.T) {
	for _, c := range []struct {
		arguments []string
		wants     []string
	}{
		{[]string{"-peers", "stdlib,nosuch"}, []string{`unknown peer "nosuch"`, "timewheel", "floor"}},
		{[]string{"-peers", "stdlib,"}, []string{`unknown peer ""`, "timewheel"}},
		{[]string{"-cases", "nosuch"}, []string{`unknown case "nosuch"`, "add-small", "scale-10m"}},
		{[]string{"-quick", "-cases", "create-huge"}, []string{`case "create-huge" is not for -quick`}},
		{[]string{"-rounds", "-1"}, []string{"-rounds -1 is negative"}},
		{[]string{"-rounds", "many"}, []string{"many"}},
		{[]string{"extra"}, []string{`unexpected argument "extra"`}},
	} {
		_, err := parseOptions(c.arguments, io.Discard)
		if !errors.As(err, new(usageError)) {
			t.Errorf("%q: got %v, want a usage error", c.arguments, err)
			continue
		}
		for _, want := range c.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %q does not tell %q", c.arguments, err, want)
			}
		}
	}
}

func TestParseOptions_defaults_suitTheMode(t *testing.T) {
	full, err := parseOptions(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(full.peers) != len(definitions()) || len(full.cases) != len(cases()) || full.rounds != 5 {
		t.Errorf("full: %d peers, %d cases, %d rounds", len(full.peers), len(full.cases), full.rounds)
	}
	quick, err := parseOptions([]string{"-quick"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range quick.peers {
		if !d.keyed {
			t.Errorf("quick: peer %s has no keys", d.name)
		}
	}
	for _, c := range quick.cases {
		if c.fullOnly {
			t.Errorf("quick: case %s is for the full mode", c.name)
		}
	}
	if _, err := parseOptions([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: got %v", err)
	}
}

func TestMain_unknownPeer_exitsWith2(t *testing.T) {
	cmd := exec.Command(executable(t), "-peers", "nosuch")
	cmd.Env = append(os.Environ(), mainVariable+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("got %v, want exit status 2", err)
	}
	if !strings.Contains(string(out), `bench: unknown peer "nosuch"; the valid ones are: timewheel, `) {
		t.Errorf("got output %q", out)
	}
}

// executable returns the name of the test binary.
func executable(t *testing.T) string {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return name
}
