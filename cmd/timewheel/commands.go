// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// The exit codes. The package documentation and the help list them.
const (
	done = iota
	failed
	usage
	notFound
	notConfirmed
	locked
)

// A command is one of the program's commands. Its function define registers the flags and returns the action.
type command struct {
	name    string
	group   string
	summary string
	args    string   // arguments after the flags, for the usage line
	values  []string // possible arguments, for completion
	about   string   // help text
	define  func(p *program, f *flag.FlagSet) action
}

// An action runs a command with the arguments that are not flags.
type action func(ctx context.Context, args []string) error

const (
	serves = "Serve"
	look   = "Look"
	change = "Change"
	move   = "Move"
	other  = "Other"
)

// commands returns the commands in the order in which the help lists them.
func commands() []*command {
	return []*command{
		{"ls", look, "list tasks: the next due ones, or those that a search finds", "", nil, aboutList, defineList},
		{"show", look, "everything about tasks, by key", "KEY...", nil, aboutShow, defineShow},
		{"stats", look, "the number of tasks of each kind, and of overdue ones", "", nil, aboutStats,
			defineStats},
		{"failures", look, "why tasks fail, the largest group first", "", nil, aboutFailures, defineFailures},
		{"history", look, "the attempts that have ended, newest first", "[KEY]", nil, aboutHistory, defineHistory},
		{"schedules", look, "the declared schedules, and which version is applied", "", nil, aboutSchedules, defineSchedules},
		{"nodes", look, "the processes of a cluster", "", nil, aboutNodes, defineNodes},
		{"run-now", change, "make tasks due at once", "[KEY...]", nil, aboutRunNow, defineRunNow},
		{"reschedule", change, "make the next run of tasks due at another time", "[KEY...]", nil, aboutReschedule,
			defineReschedule},
		{"unpark", change, "let parked tasks run again, with all their attempts", "[KEY...]", nil, aboutUnpark,
			defineUnpark},
		{"pause", change, "keep tasks from running until they are resumed", "[KEY...]", nil, aboutPause, definePause},
		{"resume", change, "let paused tasks run again", "[KEY...]", nil, aboutResume, defineResume},
		{"pause-kind", change, "keep all tasks of kinds from running until the kinds are resumed", "[KIND...]", nil,
			aboutPauseKind, definePauseKind},
		{"resume-kind", change, "let the tasks of paused kinds run again", "[KIND...]", nil, aboutResumeKind,
			defineResumeKind},
		{"tune", change, "change limits, the pool size and the catch-up rate while the programs run", "", nil, aboutTune, defineTune},
		{"drain", change, "keep nodes from starting further runs, before they are stopped", "NODE...", nil, aboutDrain, defineDrain},
		{"undrain", change, "let drained nodes run tasks again", "NODE...", nil, aboutUndrain, defineUndrain},
		{"cancel", change, "cancel the contexts of runs in progress", "[KEY...]", nil, aboutCancel, defineCancel},
		{"rm", change, "remove tasks", "[KEY...]", nil, aboutRemove, defineRemove},
		{"export", move, "write tasks as JSON lines", "[FILE]", nil, aboutExport, defineExport},
		{"import", move, "add tasks from exported JSON lines", "[FILE]", nil, aboutImport, defineImport},
		{"backup", move, "copy an embedded store, even while it is in use", "FILE", nil, aboutBackup, defineBackup},
		{"migrate", move, "migrate the schema of a database to the version of this program", "", nil, aboutMigrate,
			defineMigrate},
		{"serve", serves, "run tasks for programs in any language: HTTP in, webhooks out", "", nil, aboutServe,
			defineServe},
		{"completion", other, "write a script that completes command lines", "SHELL", shells, aboutCompletion,
			defineCompletion},
		{"version", other, "print the version", "", nil, "", defineVersion},
		{"help", other, "explain a command", "[COMMAND]", nil, "", defineHelp},
	}
}

// find returns the command with the given name, or nil if there is none.
func find(name string) *command {
	all := commands()
	if i := slices.IndexFunc(all, func(c *command) bool { return c.name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// noCommand returns the error for an unknown command.
func noCommand(name string) error {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return usagef("there is no command %q%s", name, didYouMean(name, names))
}

// A usageError is a mistake in the command line.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// errNotConfirmed is the error for an action that the user did not confirm.
var errNotConfirmed = errors.New("nothing was done")

// run runs the command that the arguments name and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		p.help(p.err)
		return usage
	}
	name, args := args[0], args[1:]
	switch name {
	case "-h", "-help", "--help":
		name = "help"
	case completeCommand:
		p.complete(args)
		return done
	}
	c := find(name)
	if c == nil {
		p.complain("%v; `timewheel help` lists them", noCommand(name))
		return usage
	}
	err := c.start(ctx, p, args)
	code := codeOf(err)
	switch {
	case errors.As(err, new(ended)):
	case errors.Is(err, flag.ErrHelp), err == nil:
		return done
	case code == usage:
		p.complain("%v; `timewheel help %s` says more", err, c.name)
	case errors.Is(ctx.Err(), context.Canceled) && errors.Is(err, context.Canceled):
		p.complain("interrupted")
	default:
		p.complain("%v", err)
		if hint := hintFor(err); hint != "" {
			fmt.Fprintln(p.err, hint)
		}
	}
	return code
}

// complain writes an error message and prefixes each line with the program's name.
func (p *program) complain(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...) + "\n") {
		fmt.Fprint(p.err, "timewheel: "+strings.TrimPrefix(line, "timewheel: "))
	}
}

func codeOf(err error) int {
	var e ended
	switch {
	case errors.As(err, &e):
		return int(e)
	case err == nil, errors.Is(err, flag.ErrHelp):
		return done
	case errors.As(err, new(usageError)):
		return usage
	case errors.Is(err, durable.ErrTaskKeyNotFound):
		return notFound
	case errors.Is(err, errNotConfirmed):
		return notConfirmed
	case errors.Is(err, pebble.ErrLocked):
		return locked
	}
	return failed
}

// hintFor returns a hint on how to fix an error, or "" if there is none.
func hintFor(err error) string {
	switch {
	case errors.Is(err, pebble.ErrLocked):
		return "One process at a time uses a store. Stop that process first, or ask it: -url is the address of a\n" +
			"running serve, and `timewheel backup -url` copies the store while it is in use."
	case errors.Is(err, postgres.ErrSchema):
		return "`timewheel migrate` makes the schema, or brings an older one up to date. -schema and -cluster\n" +
			"name another one."
	case errors.Is(err, durable.ErrVersion):
		return "A later version of this program wrote it. Use that version."
	case errors.Is(err, durable.ErrCorrupt):
		return "Restore the damaged file from a copy. pebble.Salvage reads what is left of a store without one."
	}
	return ""
}

// start parses the flags of the command and runs it.
func (c *command) start(ctx context.Context, p *program, args []string) error {
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	act := c.define(p, f)
	given := args
	args, err := parse(f, given)
	if errors.Is(err, flag.ErrHelp) {
		c.help(p.out, f)
		return err
	}
	if err != nil {
		text := err.Error()
		if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
			var names []string
			f.VisitAll(func(one *flag.Flag) { names = append(names, "-"+one.Name) })
			text += didYouMean("-"+name, names)
		}
		return usageError{text}
	}
	if c.isRemote() {
		away, err := p.remote.choose(p, f)
		if err != nil {
			return err
		}
		if away {
			return c.send(ctx, p, given)
		}
	}
	return act(ctx, args)
}

// parse parses the flags, which may come before, between and after the other arguments. It returns the arguments that
// are not flags. Everything after -- is such an argument.
func parse(f *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		left := f.Args()
		if len(left) == 0 {
			return rest, nil
		}
		if at := len(args) - len(left); at > 0 && args[at-1] == "--" {
			return append(rest, left...), nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

// noArgs returns an action that calls do and accepts no arguments.
func noArgs(do func(ctx context.Context) error) action {
	return func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			return usagef("%q is one argument too many", args[0])
		}
		return do(ctx)
	}
}

// oneFile returns the only argument, or "-" for standard input or output if there are no arguments.
func oneFile(args []string) (string, error) {
	switch len(args) {
	case 0:
		return "-", nil
	case 1:
		return args[0], nil
	}
	return "", usagef("%q is one argument too many", args[1])
}

// help writes the program's help.
func (p *program) help(to io.Writer) {
	fmt.Fprint(to, "timewheel operates the durable tasks of timing wheels. Only serve runs them.\n\n"+
		"usage: timewheel COMMAND [flags] [arguments]\n")
	group := ""
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		if c.group != group {
			group = c.group
			fmt.Fprintf(w, "\n%s\n", group)
		}
		fmt.Fprintf(w, "  %s\t%s\n", c.name, c.summary)
	}
	_ = w.Flush()
	fmt.Fprint(to, `
Where the tasks are
  -db URL   the database of a cluster; the environment variable TIMEWHEEL_DB is the default
  -dir DIR  an embedded store that no process has open
  -url URL  a running serve with "operate": true, for the commands that look and change;
            the environment variable TIMEWHEEL_URL is the default, and TIMEWHEEL_TOKEN has the token

Examples
  timewheel ls -dir /var/lib/shop/tasks -state parked
  timewheel failures -db postgres://shop@db/shop
  timewheel unpark -kind mail -failure "connection refused"
  timewheel pause-kind -url https://tasks.example:8471 -token-file ann.token mail

Exit codes: 0 done, 1 failed, 2 wrong command line, 3 no task with a key, 4 not confirmed,
5 another process has the store open. `+"`timewheel help COMMAND`"+` says more about a command.
`)
}

// help writes the command's help, including its flags.
func (c *command) help(to io.Writer, f *flag.FlagSet) {
	line := "usage: timewheel " + c.name
	flags := 0
	f.VisitAll(func(*flag.Flag) { flags++ })
	if flags > 0 {
		line += " [flags]"
	}
	if c.args != "" {
		line += " " + c.args
	}
	fmt.Fprintf(to, "%s\n\n%s.\n", line, strings.ToUpper(c.summary[:1])+c.summary[1:])
	if c.about != "" {
		fmt.Fprintf(to, "\n%s\n", strings.TrimPrefix(c.about, "\n"))
	}
	if flags == 0 {
		return
	}
	fmt.Fprintln(to)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	f.VisitAll(func(one *flag.Flag) {
		name, text := flag.UnquoteUsage(one)
		if name != "" {
			name = " " + name
		}
		fmt.Fprintf(w, "  -%s%s\t%s\n", one.Name, name, text)
	})
	_ = w.Flush()
}

func defineHelp(p *program, _ *flag.FlagSet) action {
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			p.help(p.out)
			return nil
		}
		c := find(args[0])
		if c == nil {
			return noCommand(args[0])
		}
		return c.start(ctx, p, []string{"-h"})
	}
}
