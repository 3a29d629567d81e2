// SPDX-License-Identifier: MIT

// Package leaks checks the section on leak checks in docs/testing.md: which goroutines a user of the wheel must ignore,
// and that no others are left.
package leaks

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed581295f1/timewheel/timewheel"
)

// ignored has the lines of docs/testing.md, word for word.
var ignored = []goleak.Option{
	goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
	goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
}

func TestGoleak_withTheLinesOfTheDocs_findsNothing(t *testing.T) {
	tw, err := timewheel.New(time.Millisecond, 64)
	if err != nil {
		t.Fatal(err)
	}
	tw.Start()
	ran := make(chan bool)
	tw.AfterFunc(time.Millisecond, func() { ran <- true })
	<-ran
	tw.Stop()
	if err := goleak.Find(ignored...); err != nil {
		t.Error(err)
	}
}

// A wheel that was not stopped is still found.
func TestGoleak_withTheLinesOfTheDocs_findsAWheelThatRuns(t *testing.T) {
	tw, err := timewheel.New(time.Millisecond, 64)
	if err != nil {
		t.Fatal(err)
	}
	tw.Start()
	defer tw.Stop()
	if err := goleak.Find(ignored...); err == nil ||
		!strings.Contains(err.Error(), "seed581295f1/timewheel/timewheel") {
		t.Errorf("goleak finds %v", err)
	}
}

// Without the lines the two goroutines of ants are found. If this test fails, ants no longer starts them: delete the
// lines here and in docs/testing.md.
func TestGoleak_withoutTheLines_findsTheTwoOfAnts(t *testing.T) {
	err := goleak.Find()
	if err == nil {
		t.Fatal("importing the wheel starts no goroutine any more")
	}
	functions := regexp.MustCompile(`with (\S+) on top of the stack`).FindAllStringSubmatch(err.Error(), -1)
	if len(functions) != 2 {
		t.Errorf("importing the wheel starts other goroutines: %v", err)
	}
}

func TestDocs_haveTheLines(t *testing.T) {
	docs, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("leaks_test.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^\tgoleak\.Ignore.*,$`).FindAllString(string(source), -1)
	if len(lines) != 2 {
		t.Fatalf("there are %d lines", len(lines))
	}
	for _, line := range lines {
		if line = strings.Trim(line, "\t,"); !strings.Contains(string(docs), line) {
			t.Errorf("docs/testing.md does not have %s", line)
		}
	}
}
