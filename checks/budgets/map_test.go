// SPDX-License-Identifier: MIT

package budgets

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A room is a line of the map in docs/design.md: the folder of a package, and the packages that its arrow names.
type room struct {
	name    string
	imports []string
}

// folders are the rooms that are not packages. They use all packages, so the map shows no arrows from them.
var folders = []string{"bench", "checks", "examples"}

func TestMap(t *testing.T) {
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	rooms := parseMap(string(text))
	for _, wrong := range compareMap(rooms, packages(t), folders) {
		t.Error(wrong)
	}
	for _, name := range folders {
		if _, err := os.Stat(filepath.Join("..", "..", name)); err != nil {
			t.Error(err)
		}
	}
}

// packages returns the imports of each package of the repository from this repository, not counting its tests, and
// without the packages in folders.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	of := imports(t, "...")
	for name := range of {
		if first, _, _ := strings.Cut(name, "/"); slices.Contains(folders, first) {
			delete(of, name)
		}
	}
	return of
}

// parseMap returns the rooms of the first fenced text of the document. A room is an indented line.
func parseMap(document string) (rooms []room) {
	_, text, _ := strings.Cut(document, "\n```text\n")
	text, _, _ = strings.Cut(text, "\n```\n")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "  ") {
			continue
		}
		line, arrow, _ := strings.Cut(line, " → ")
		r := room{name: strings.Fields(line)[0]}
		for name := range strings.SplitSeq(strings.TrimSpace(arrow), ", ") {
			if name != "" {
				r.imports = append(r.imports, name)
			}
		}
		rooms = append(rooms, r)
	}
	return rooms
}

// compareMap returns the differences between the map and the packages.
func compareMap(rooms []room, of map[string][]string, folders []string) (wrong []string) {
	at := make(map[string]int)
	for i, r := range rooms {
		if _, twice := at[r.name]; twice {
			wrong = append(wrong, r.name+" is on the map twice")
		}
		at[r.name] = i
	}
	for name := range of {
		if _, ok := at[name]; !ok {
			wrong = append(wrong, name+" is not on the map")
		}
	}
	for i, r := range rooms {
		if _, ok := of[r.name]; !ok && !slices.Contains(folders, r.name) {
			wrong = append(wrong, r.name+" is on the map, and no package")
			continue
		}
		if want := direct(of, r.name); !slices.Equal(r.imports, want) {
			wrong = append(wrong, fmt.Sprintf("the arrow of %s names %q, want %q", r.name, r.imports, want))
		}
		for _, other := range r.imports {
			if below, ok := at[other]; ok && below <= i {
				wrong = append(wrong, "the arrow from "+r.name+" to "+other+" points upwards")
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// direct returns the imports of a package that do not follow from its other imports, sorted.
func direct(of map[string][]string, name string) (some []string) {
	for _, other := range of[name] {
		if !slices.ContainsFunc(of[name], func(third string) bool { return third != other && reaches(of, third, other) }) {
			some = append(some, other)
		}
	}
	slices.Sort(some)
	return some
}

func reaches(of map[string][]string, from, to string) bool {
	return slices.ContainsFunc(of[from], func(name string) bool { return name == to || reaches(of, name, to) })
}

func TestMap_findsWhatIsWrong(t *testing.T) {
	rooms := parseMap("# D\n\n```text\nfloor\n  a   the top → b\n  c   next to b\n  c   again → a\n  gone   not there\n  x   a folder\n```\n\n  no room\n")
	of := map[string][]string{"a": {"b", "c"}, "b": {"c"}, "c": nil}
	got := compareMap(rooms, of, []string{"x"})
	want := []string{
		"b is not on the map", "c is on the map twice", "gone is on the map, and no package",
		`the arrow of c names ["a"], want []`, "the arrow from c to a points upwards",
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// The list of the files that a durable task passes through has the files that exist, and says how many they are.
func TestWay(t *testing.T) {
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`A task passes through (\d+) files, in this order:\n\n`).FindSubmatchIndex(text)
	if said == nil {
		t.Fatal("there is no list of the files of the way")
	}
	list, _, _ := strings.Cut(string(text[said[1]:]), "\n\n")
	items := regexp.MustCompile("(?m)^(\\d+)\\. \\[`[a-z/.]+`\\]\\(\\.\\./([a-z/]+\\.go)\\)").FindAllStringSubmatch(list, -1)
	if n := string(text[said[2]:said[3]]); n != strconv.Itoa(len(items)) {
		t.Errorf("the way has %d files, and the page says %s", len(items), n)
	}
	var files []string
	for i, item := range items {
		if item[1] != strconv.Itoa(i+1) || slices.Contains(files, item[2]) {
			t.Errorf("item %d of the way is %q", i+1, item[0])
		}
		files = append(files, item[2])
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(item[2]))); err != nil {
			t.Error(err)
		}
	}
}
