// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// completeCommand is the command that the completion scripts call. Its arguments are the words of the command line, up
// to the word to complete.
const completeCommand = "__complete"

// files is the line that complete writes if a file or a directory is expected.
const files = ":files"

const aboutCompletion = `
The shells are bash, zsh and fish.

  bash  source <(timewheel completion bash)       # in ~/.bashrc
  zsh   source <(timewheel completion zsh)        # in ~/.zshrc, after compinit
  fish  timewheel completion fish | source        # in ~/.config/fish/config.fish`

var shells = []string{"bash", "zsh", "fish"}

var scripts = map[string]string{
	"bash": `# bash completion of timewheel
_timewheel() {
	local line
	COMPREPLY=()
	while IFS= read -r line; do
		if [[ $line == :files ]]; then
			compopt -o default 2>/dev/null
		elif [[ -n $line ]]; then
			COMPREPLY+=("$line")
		fi
	done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _timewheel timewheel
`,
	"zsh": `#compdef timewheel
_timewheel() {
	local line
	local -a found
	while IFS= read -r line; do
		if [[ $line == :files ]]; then
			_files
		elif [[ -n $line ]]; then
			found+=("$line")
		fi
	done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
	(( ${#found} )) && compadd -- "${found[@]}"
}
compdef _timewheel timewheel
`,
	"fish": `# fish completion of timewheel
function __timewheel_complete
	set -l words (commandline -opc) (commandline -ct)
	for line in ($words[1] __complete $words[2..-1] 2>/dev/null)
		if test "$line" = :files
			__fish_complete_path (commandline -ct)
		else if test -n "$line"
			echo $line
		end
	end
end
complete -c timewheel -f -a '(__timewheel_complete)'
`,
}

func defineCompletion(p *program, _ *flag.FlagSet) action {
	return func(_ context.Context, args []string) error {
		if len(args) != 1 || scripts[args[0]] == "" {
			return usagef("which shell? Give one of %s", strings.Join(shells, ", "))
		}
		_, err := io.WriteString(p.out, scripts[args[0]])
		return err
	}
}

// complete writes the completions of the last word, one per line.
func (p *program) complete(words []string) {
	if len(words) == 0 {
		return
	}
	last := words[len(words)-1]
	for _, s := range p.candidates(words[:len(words)-1], last) {
		if strings.HasPrefix(s, last) || s == files {
			fmt.Fprintln(p.out, s)
		}
	}
}

// candidates returns the words that may come next, whether or not they begin with last.
func (p *program) candidates(words []string, last string) (all []string) {
	if len(words) == 0 {
		for _, c := range commands() {
			all = append(all, c.name)
		}
		return all
	}
	c := find(words[0])
	if c == nil {
		return nil
	}
	if c.name == "help" {
		return p.candidates(nil, last)
	}
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	c.define(p, f)
	if slices.Contains(words, "--") {
		return c.arguments()
	}
	if name, ok := strings.CutPrefix(words[len(words)-1], "-"); ok && len(words) > 1 {
		if one := f.Lookup(strings.TrimPrefix(name, "-")); one != nil && !isBool(one) {
			switch one.Name {
			case "state":
				return stateNames()
			case "by":
				return countedBy
			case "dir", "config", "token-file", "ca-file":
				return []string{files}
			}
			return nil // any value is allowed
		}
	}
	if strings.HasPrefix(last, "-") {
		f.VisitAll(func(one *flag.Flag) { all = append(all, "-"+one.Name) })
		return append(all, "-help")
	}
	return c.arguments()
}

// arguments returns the possible arguments of the command.
func (c *command) arguments() []string {
	if strings.Contains(c.args, "FILE") {
		return []string{files}
	}
	return c.values
}

func isBool(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}
