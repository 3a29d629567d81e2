// SPDX-License-Identifier: MIT

// Interleave tests a copy of the library in which every statement of the core, packages timewheel, crew and pool, may
// yield the processor. Interleavings of goroutines that a plain run meets once in a million occur within seconds. It
// runs the tests of these packages including the random walk, the black-box tests with the contract of every scheduler,
// and the soak with its histories.
//
//	go run ./checks/interleave -for 1h -seed 7
//
// In every process one point in -every yields, and the seed decides which: -seed in the first round, one more in each
// further round. A failure prints the seed and how to repeat the round. The seed does not decide which goroutine the
// runtime picks after a yield, so reproducing a failure may need a few attempts.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/checks/internal/library"
)

const module = "github.com/seed581295f1/timewheel"

// core is the packages whose statements may yield.
var core = []string{"timewheel", "internal/crew", "pool"}

// A program is a binary of the copy that runs once in every round.
type program struct {
	name string
	args []string
	dir  string // its working directory in the copy
}

// alone matches tests with one goroutine, or with hardly any work for a second one. They take most of the time of all
// tests, and a yield changes nothing in them.
const alone = "^TestLayouts?_|^TestTree_|^TestTicks_|^TestBucket_|^TestUpcoming_|^TestOccupancy_|^TestFault_|" +
	"^TestLoop_lateByLessThanATick_|^Fuzz"

var programs = []program{
	{"crew", []string{"-test.short", "-test.failfast"}, "internal/crew"},
	{"pool", []string{"-test.short", "-test.failfast"}, "pool"},
	{"timewheel", []string{"-test.short", "-test.failfast", "-test.skip=" + alone}, "timewheel"},
	{"test", []string{"-test.short", "-test.failfast", "-test.skip=" + library.Documents}, "test"},
	{"soak", []string{"-for=4s"}, "."},
}

func main() {
	var c config
	flag.Uint64Var(&c.seed, "seed", 1, "of the first round")
	flag.Uint64Var(&c.every, "every", 16, "one call of this many yields")
	flag.IntVar(&c.rounds, "rounds", 0, "how many rounds, whatever -for says")
	flag.DurationVar(&c.duration, "for", 20*time.Second, "for how long to begin further rounds")
	flag.DurationVar(&c.timeout, "timeout", 5*time.Minute, "how long a program may take before it counts as hung")
	flag.BoolVar(&c.race, "race", false, "with the race detector")
	flag.StringVar(&c.only, "only", "", "a regular expression for the programs to run: crew, pool, timewheel, test, soak")
	flag.StringVar(&c.root, "from", "", "the folder of the library, if not this repository")
	flag.Parse()
	if flag.NArg() > 0 || c.every == 0 || c.rounds < 0 || c.duration <= 0 {
		fmt.Fprintln(os.Stderr, "interleave: -every and -for must be positive, and there are no other arguments")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := c.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "interleave:", err)
		stop()
		os.Exit(1)
	}
}

type config struct {
	seed, every uint64
	rounds      int // 0: as many as start within the duration
	duration    time.Duration
	timeout     time.Duration
	race        bool
	only        string
	root        string

	programs []program
}

// run makes the copy and runs the rounds.
func (c config) run(ctx context.Context, out io.Writer) (err error) {
	only, err := regexp.Compile(c.only)
	if err != nil {
		return err
	}
	for _, p := range programs {
		if only.MatchString(p.name) {
			c.programs = append(c.programs, p)
		}
	}
	if len(c.programs) == 0 {
		return fmt.Errorf("-only %s leaves nothing to run", c.only)
	}
	if c.root == "" {
		if c.root, err = library.Root(); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "interleave")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := library.Copy(c.root, dir); err != nil {
		return err
	}
	if err := rewrite(dir, module, core); err != nil {
		return err
	}
	fmt.Fprintf(out, "one point in %d yields; building the copy ...\n", c.every)
	if err := c.build(ctx, dir); err != nil {
		return err
	}
	start := time.Now()
	for round := 0; ; round++ {
		seed := c.seed + uint64(round)
		for _, p := range c.programs {
			if err := c.runProgram(ctx, dir, p, seed); err != nil {
				return err
			}
		}
		elapsed := time.Since(start)
		fmt.Fprintf(out, "round %d, seed %d: passed, %v so far\n", round+1, seed, elapsed.Round(time.Second))
		if c.rounds > 0 && round+1 == c.rounds || c.rounds == 0 && elapsed > c.duration {
			return nil
		}
	}
}

// build builds the programs in the root of the copy.
func (c config) build(ctx context.Context, dir string) error {
	for _, p := range c.programs { // with -trimpath, unchanged packages come from go's cache, whatever dir is
		args := []string{"test", "-c", "-vet=off", "-trimpath", "-o", binary(dir, p), "./" + p.dir}
		if p.name == "soak" {
			args = []string{"build", "-trimpath", "-o", binary(dir, p), module + "/checks/soak"}
		}
		if c.race {
			args = append(args[:1:1], append([]string{"-race"}, args[1:]...)...)
		}
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
		}
	}
	return nil
}

// binary returns the path of a program. The extension is needed on Windows and harmless elsewhere.
func binary(dir string, p program) string { return filepath.Join(dir, p.name+".exe") }

// runProgram runs one program with the seed. With one processor a yield always lets another goroutine run. With several
// processors goroutines also meet inside a statement. So half of the rounds use one processor. The black-box tests take
// long, so each round tests one layout.
func (c config) runProgram(ctx context.Context, dir string, p program, seed uint64) error {
	args := p.args[:len(p.args):len(p.args)]
	if p.name == "soak" {
		args = append(args, fmt.Sprint("-seed=", seed))
	} else {
		args = append(args, fmt.Sprint("-test.timeout=", c.timeout))
	}
	var text bytes.Buffer
	cmd := exec.CommandContext(ctx, binary(dir, p), args...)
	cmd.Dir = filepath.Join(dir, filepath.FromSlash(p.dir))
	cmd.Stdout, cmd.Stderr = &text, &text
	cmd.Env = append(os.Environ(),
		fmt.Sprint("INTERLEAVE_SEED=", seed), fmt.Sprint("INTERLEAVE_EVERY=", c.every),
		"TIMEWHEEL_TEST_LAYOUT="+[]string{"hashed", "hierarchical"}[seed%2])
	if seed/2%2 == 0 {
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s, seed %d: %w\n%s\nrepeat with: go run ./checks/interleave -seed %d -every %d -rounds 1",
			p.name, seed, err, &text, seed, c.every)
	}
	return nil
}
