// SPDX-License-Identifier: MIT

// Mutants makes the mistakes of its lists, one at a time, and runs the tests. A mutant is killed when a test
// fails, hangs, or does not end. The lists have mistakes that no tool makes which changes single operators:
//
//   - synchronization.txt has mistakes between goroutines: a lock that is not taken, a compare-and-swap that became
//     a load and a store, a store that was moved. They go through stages, in a copy of the library.
//   - The other lists have mistakes of meaning: a case that is left out, a wrong bound, a promise that is not kept.
//     The tests that each change must pass have to find them.
//
// Usage:
//
//	go run ./checks/mutants                    all of them; two hours
//	go run ./checks/mutants -run "^timer:" -v  some of them, with what the tests print
//
// It ends with status 1 if a mutant survives that the list does not expect to survive, or if an expected survivor is
// killed. It does so as well if the text to change does not occur exactly once in the file.
package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/checks/internal/library"
)

//go:embed *.txt
var lists embed.FS

// A stage is one way to run the tests. A mutant goes through the stages until one kills it: first what is quick
// and kills most.
type stage struct {
	name string
	args []string // of the go command, in the copy; or of interleave
}

var stages = []stage{
	{"tests", []string{"test", "-count=1", "-vet=off", "-short", "-failfast", "-timeout=90s", packages}},
	{"interleave", []string{"-only=^(" + packages + ")$", "-rounds=3", "-timeout=90s"}},
	{"race", []string{"test", "-count=1", "-vet=off", "-short", "-race", "-failfast", "-timeout=300s", packages}},
	{"black box", []string{"test", "-count=1", "-vet=off", "-short", "-failfast", "-timeout=180s", "-skip=" + library.Documents,
		"./test"}},
	{"interleave more", []string{"-rounds=4", "-timeout=3m"}},
}

// interleave is the name of that tool, built in the copy. The ending is needed on Windows and does no harm elsewhere.
const interleave = "interleave.exe"

// packages stands for the packages that use what a mutant changes.
const packages = "<packages>"

func main() {
	which := flag.String("run", "", "a regular expression for the names of the mutants")
	from := flag.Int("from", 1, "the stage to begin with, 1 to 5")
	upTo := flag.Int("to", len(stages), "the stage to end with; what is alive then counts as surviving")
	var part part
	flag.TextVar(&part, "part", all, "which mutants: 2/4 is every fourth from the second on")
	verbose := flag.Bool("v", false, "print what the tests print")
	flag.Parse()
	match, err := regexp.Compile(*which)
	if err != nil || flag.NArg() > 0 || *from < 1 || *from > *upTo || *upTo > len(stages) {
		fmt.Fprintln(os.Stderr, "mutants: wrong arguments, see -help")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var details io.Writer = io.Discard
	if *verbose {
		details = os.Stdout
	}
	if err := run(ctx, match, part, stages[*from-1:*upTo], os.Stdout, details); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

// A part is every n-th mutant, from the k-th on.
type part struct{ k, n int }

var all = part{1, 1}

func (p part) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d/%d", p.k, p.n), nil }

func (p *part) UnmarshalText(text []byte) error {
	if _, err := fmt.Sscanf(string(text), "%d/%d", &p.k, &p.n); err != nil || p.k < 1 || p.k > p.n {
		return fmt.Errorf("%q is not a part such as 2/4", text)
	}
	return nil
}

// has reports whether mutant i, counted from 0, is in the part.
func (p part) has(i int) bool { return i%p.n == p.k-1 }

func run(ctx context.Context, match *regexp.Regexp, part part, stages []stage, out, details io.Writer) error {
	mutants, err := parseLists()
	if err != nil {
		return err
	}
	root, err := library.Root()
	if err != nil {
		return err
	}
	for _, m := range mutants { // all of them, so that a change of the code is noticed at once
		if _, err := m.files(root); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := library.Copy(root, dir); err != nil {
		return err
	}
	tool := filepath.Join(dir, interleave)
	if text, err := goIn(ctx, root, "build", "-o", tool, "./checks/interleave"); err != nil {
		return fmt.Errorf("go build ./checks/interleave: %w\n%s", err, text)
	}
	tried, killed, argued := 0, 0, 0
	var wrong []error
	for i, m := range mutants {
		if !part.has(i) || !match.MatchString(m.name) {
			continue
		}
		tried++
		start := time.Now()
		try := m.try
		if m.tests != nil {
			try = m.tryTests
		}
		by, err := try(ctx, root, dir, stages, details)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		switch {
		case by != "" && m.survives:
			wrong = append(wrong, fmt.Errorf("%s: the list says that it survives, and %s killed it", m.name, by))
		case by != "":
			killed++
		case m.survives:
			argued++
		default:
			by = "SURVIVES"
			wrong = append(wrong, fmt.Errorf("%s: survives", m.name))
		}
		fmt.Fprintf(out, "%-16s %4.0f s  %s\n", by, time.Since(start).Seconds(), m.name)
	}
	fmt.Fprintf(out, "\n%d mutants, %d killed, %d survive as test/MUTANTS.md says\n", tried, killed, argued)
	return errors.Join(wrong...)
}

// try runs the stages for the mutant and returns the name of the one that killed it, or "".
func (m mutant) try(ctx context.Context, root, dir string, stages []stage, details io.Writer) (by string, err error) {
	changed, err := m.files(root)
	if err != nil {
		return "", err
	}
	for name, text := range changed {
		original, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		copied := filepath.Join(dir, name)
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, os.WriteFile(copied, original, 0o644)) }()
	}
	if text, err := goIn(ctx, dir, "build", "./timewheel", "./internal/crew", "./pool"); err != nil {
		return "", fmt.Errorf("%s: does not compile: %w\n%s", m.name, err, text)
	}
	for _, s := range stages {
		var text string
		if args := m.args(s); args[0] == "test" {
			text, err = goIn(ctx, dir, args...)
		} else {
			text, err = runIn(ctx, root, filepath.Join(dir, interleave), append([]string{"-from", dir}, args...)...)
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if err != nil {
			fmt.Fprintf(details, "== %s: %s\n%s\n", m.name, s.name, text)
			return s.name, nil
		}
	}
	return "", nil
}

// tryTests is try for a mutant whose list names the tests to run. They run on root, where the go command takes the
// text of the mutant in place of what lies in its files.
func (m mutant) tryTests(ctx context.Context, root, dir string, _ []stage, details io.Writer) (by string, err error) {
	changed, err := m.files(root)
	if err != nil {
		return "", err
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = make(map[string]string)
	var packages []string
	for name, text := range changed {
		file := filepath.Join(dir, fmt.Sprintf("mutant%d.go", len(packages)))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, name)] = file
		packages = append(packages, "./"+path.Dir(name))
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", err
	}
	if text, err := goIn(ctx, root, append([]string{"build", "-overlay", file}, packages...)...); err != nil {
		return "", fmt.Errorf("%s: does not compile: %w\n%s", m.name, err, text)
	}
	args := []string{"test", "-overlay", file, "-count=1", "-vet=off", "-short", "-failfast", "-timeout=15m"}
	said, err := goIn(ctx, root, append(args, m.finders()...)...)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err != nil {
		fmt.Fprintf(details, "== %s\n%s\n", m.name, said)
		return "tests", nil
	}
	return "", nil
}

func goIn(ctx context.Context, dir string, args ...string) (string, error) {
	return runIn(ctx, dir, "go", args...)
}

// runIn runs a program in a folder and returns what it prints.
func runIn(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=")
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// A mutant is a mistake: a name, and the hunks that make it.
type mutant struct {
	name     string
	survives bool
	tests    []string // the packages whose tests are to find it; nil: the stages
	hunks    []hunk
}

type hunk struct{ file, old, new string }

// parseLists reads all lists.
func parseLists() (all []mutant, err error) {
	names, err := fs.Glob(lists, "*.txt")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := lists.ReadFile(name)
		if err != nil {
			return nil, err
		}
		some, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// parse reads a list of mutants. Lines that begin with # are comments.
//
//	tests ./a ./b          the tests of these packages are to find the mutants that follow
//	= name                 begins a mutant
//	survives               it may: test/MUTANTS.md says why
//	@ file                 begins a hunk: the lines that follow, as in a patch
//	 	line             that is kept
//	-	line             that is removed
//	+	line             that is added
func parse(text string) (all []mutant, err error) {
	var tests []string
	for i, line := range strings.Split(text, "\n") {
		first, rest := "", ""
		if line != "" {
			first, rest = line[:1], line[1:]
		}
		var m *mutant
		if len(all) > 0 {
			m = &all[len(all)-1]
		}
		switch {
		case first == "" || first == "#":
		case strings.HasPrefix(line, "tests "):
			tests = strings.Fields(line)[1:]
		case first == "=":
			all = append(all, mutant{name: strings.TrimSpace(rest), tests: tests})
		case m == nil:
			return nil, fmt.Errorf("line %d: %q is in no mutant", i+1, line)
		case line == "survives":
			m.survives = true
		case first == "@":
			m.hunks = append(m.hunks, hunk{file: strings.TrimSpace(rest)})
		case len(m.hunks) > 0 && strings.Contains(" -+", first):
			h := &m.hunks[len(m.hunks)-1]
			if first != "+" {
				h.old += rest + "\n"
			}
			if first != "-" {
				h.new += rest + "\n"
			}
		default:
			return nil, fmt.Errorf("line %d: %q is not known", i+1, line)
		}
	}
	return all, nil
}

// finders returns the packages whose tests are to find the mutant: first its own, whichever the list names.
func (m mutant) finders() []string {
	own := "./" + path.Dir(m.hunks[0].file)
	return append([]string{own}, slices.DeleteFunc(slices.Clone(m.tests), func(p string) bool { return p == own })...)
}

// args returns the arguments of a stage for this mutant.
func (m mutant) args(s stage) (all []string) {
	users := []string{path.Dir(m.hunks[0].file)}
	if users[0] == "internal/crew" {
		users = append(users, "pool", "timewheel")
	}
	for _, arg := range s.args {
		switch before, after, ok := strings.Cut(arg, packages); {
		case !ok:
			all = append(all, arg)
		case arg == packages:
			for _, p := range users {
				all = append(all, "./"+p)
			}
		default: // a regular expression for the programs of interleave
			var names []string
			for _, p := range users {
				names = append(names, path.Base(p))
			}
			all = append(all, before+strings.Join(names, "|")+after)
		}
	}
	return all
}

// files returns the text of the files that the mutant changes.
func (m mutant) files(root string) (map[string]string, error) {
	changed := make(map[string]string)
	for _, h := range m.hunks {
		text, ok := changed[h.file]
		if !ok {
			original, err := os.ReadFile(filepath.Join(root, h.file))
			if err != nil {
				return nil, err
			}
			text = string(original)
		}
		at, n := 0, 0
		for i := range text { // at the beginning of a line; what is there twice may overlap
			if (i == 0 || text[i-1] == '\n') && strings.HasPrefix(text[i:], h.old) {
				at, n = i, n+1
			}
		}
		if n != 1 {
			return nil, fmt.Errorf("%s: the text to change is %d times in %s:\n%s", m.name, n, h.file, h.old)
		}
		changed[h.file] = text[:at] + h.new + text[at+len(h.old):]
	}
	if len(changed) == 0 {
		return nil, fmt.Errorf("%s: changes nothing", m.name)
	}
	return changed, nil
}
