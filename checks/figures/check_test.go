// SPDX-License-Identifier: MIT

package figures

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// Each mistake in a copy of the prose is found, with its line, its text, and the value of the source.
func TestFigures_mistakesInACopy_areFound(t *testing.T) {
	all, rows := files(t), table(t)
	for name, c := range map[string]struct{ file, old, text, want string }{
		"a figure": {"README.md", "timer takes ", "timer takes 9", "takes # bytes plus its key, where `time.AfterFunc` behind a " +
			"concurrent map takes #.\": 9"},
		"a figure, by its source": {"README.md", "timer takes ", "timer takes 9",
			"by bench/RESULTS.md: Create 1M timers from one goroutine: timewheel: heap each, B"},
		"a figure in a table":     {"docs/comparison.md", "(measured) | 0 |", "(measured) | 17 |", "17 stands there, and must be 0 by"},
		"a figure in a comment":   {"timewheel/doc.go", " bytes for its entries", "7 bytes for its entries", "timewheel/doc.go:"},
		"a sentence that is gone": {"README.md", "A keyed timer takes", "A timer takes", "stands there 0 times"},
		"a new figure": {"README.md", "## Guarantees", "It takes 17 ms.\n\n## Guarantees",
			"17 ms has no source in table_test.go"},
		"a new figure over two lines": {"timewheel/doc.go", "// # Size", "// It takes 17\n// ms.\n//\n// # Size",
			"ms has no source in table_test.go"},
		"a figure of another unit": {"durable/doc.go", "\npackage durable", "\n// Removes 17,000 a second.\npackage durable",
			"17,000 a second has no source"},
		"an exception that is gone": {"docs/guarantees.md", "25 ms", "some ms", "25 ms is an exception in table_test.go, and not in the file"},
		"a measurement":             {"docs/testing.md", "A seed takes 20 ms", "A seed takes 7 ms", "7 ms has no source"},
	} {
		t.Run(name, func(t *testing.T) {
			texts := maps.Clone(all)
			if strings.Count(texts[c.file], c.old) == 0 {
				t.Fatalf("%s has no %q", c.file, c.old)
			}
			texts[c.file] = strings.Replace(texts[c.file], c.old, c.text, 1)
			found := append(compare(texts, rows), uncovered(texts, rows, exceptions)...)
			if !slices.ContainsFunc(found, func(p problem) bool { return strings.Contains(p.String(), c.want) }) {
				t.Errorf("found are %q, want %q", found, c.want)
			}
		})
	}
}

// The new values of a regenerated source must be in the prose, or are written into it.
func TestFigures_anotherSource(t *testing.T) {
	const name = "bench/RESULTS.md"
	old := source{name, "- Rounds: 1, fewer\n\n### Create\n\nText.\n\n| peer | wall, ms | ratio |\n|---|--:|--:|\n| **us** | 1,539 | 0.66 |\n\n## Next\n| us | 7 |"}
	later := source{name, strings.NewReplacer("1,539", "9,600", "0.66", "1.04", ": 1", ": 5").Replace(old.text)}
	prose := "// One\n// round. It takes 1,539 ms, which is 34 % less, or some 1.5\n// s.\npackage p\n"
	rows := func(s source, column string) []row {
		wall := s.cell("Create", "us", column)
		return []row{
			{file: "p.go", text: "#.", figures: []figure{s.find("- Rounds: #").rounds()}},
			{file: "p.go", text: "takes # ms, which is # % less, or some # s", figures: []figure{
				wall.whole(), s.ratio("Create", "us", column).saved(), wall.per(1000).about(2)}},
		}
	}
	texts := map[string]string{"p.go": prose}
	if found := compare(texts, rows(old, "wall, ms")[1:]); len(found) > 0 {
		t.Errorf("found are %q", found)
	}
	found := compare(texts, rows(later, "wall, ms")[1:])
	for i, want := range []string{
		"1,539 stands there, and must be 9,600 by bench/RESULTS.md: Create: us: wall, ms",
		"34 stands there, and must be -4 by", "1.5 stands there, and must be 9.6 by",
	} {
		if i >= len(found) || !strings.HasPrefix(found[i].String(), "p.go:2: ") || !strings.Contains(found[i].what, want) {
			t.Errorf("found are %q, want %q", found, want)
		}
	}
	if found := compare(texts, rows(later, "wall, s")[1:]); len(found) != 3 || !strings.HasSuffix(found[0].what, "us: wall, s is not there") {
		t.Errorf("found are %q", found)
	}

	twice := source{name, strings.Replace(later.text, "| ratio |", "| wall, ms |", 1)}
	if n := twice.cell("Create", "us", "wall, ms").n; !math.IsNaN(n) {
		t.Errorf("of two columns the figure is %v", n)
	}

	if changed := repair(texts, found); !slices.Equal(changed, []string{"p.go"}) {
		t.Errorf("changed are %q", changed)
	}
	if want := "// One\n// round. It takes 9,600 ms, which is -4 % less, or some 9.6\n// s.\npackage p\n"; texts["p.go"] != want {
		t.Errorf("the text is %q", texts["p.go"])
	}
}

func TestFigures_sourcesOfAllKinds(t *testing.T) {
	v := func(n float64) value { return value{n, "x"} }
	for want, f := range map[string]figure{
		"129": v(129).whole(), "1,234,568": v(1234567.8).whole(), "-4": v(1.04).saved(), "34": v(0.66).saved(), "-1,234": v(-1234).whole(),
		"0.78": v(0.7824).digits(2), "1,000.50": v(1000.5).digits(2), "240,000": v(240_003).about(2), "5,800": v(5814).about(2),
		"0.03": v(0.0345).about(1), "5": v(5.408).about(1), "0.2": v(0.2).about(1), "1,000": v(996).about(2), "none": v(0).count(), "7": v(7).count(),
		"One round": v(1).rounds(), "Five rounds": v(5).rounds(), "20": v(20).rounds(), "": v(math.NaN()).whole(), "65": v(129).minus(64).whole(),
		"17": v(79_092).over(v(4607)).whole(),
	} {
		if f.want != want {
			t.Errorf("it is %q, want %q", f.want, want)
		}
	}
	if !there("README.md: # timewheel") || there("README.md: # another") || there("none.md: x") {
		t.Error("what is in a file is not found")
	}
	gone := []row{{file: "p.go", text: "a seed takes 6 ms", by: "p_test.go: TestNone"}, {file: "p.go", text: "takes # ms"}}
	if found := compare(map[string]string{"p.go": "a seed takes 6 ms"}, gone); len(found) != 2 ||
		!strings.Contains(found[0].what, "is gone") || !strings.Contains(found[1].what, "has 1 figures, and 0 in") {
		t.Errorf("found are %q", found)
	}
}

func TestSources_ofPartOfARun_areNotWhole(t *testing.T) {
	const head = "# Results\n\n- Date: 2026-11-24, revision 1908d5d\n- Rounds: 3, at most\n- Command: `cd bench && go run . -out .`\n\n## Next -quick\n"
	if !(source{text: head}).isWhole() {
		t.Error("it is whole")
	}
	for old, text := range map[string]string{
		"- Date: 2026-11-24": "- Date: today", "revision 1908d5d": "no revision", "Rounds: 3": "Rounds: 2", "Rounds": "Runs",
		"5d\n": "5d, with changes that are not committed\n", ". -out": ". -quick -out", "run .": "run . -cases fire",
		"run . ": "run . -peers x ", "- Command": "- With", " -out .": "",
	} {
		if s := (source{text: strings.Replace(head, old, text, 1)}); s.isWhole() {
			t.Errorf("%s is whole", s.text)
		}
	}
}

// Prose is Markdown without its code, and the documentation of exported names.
func TestProse(t *testing.T) {
	const source = "// Package p takes 1 ms.\n//\n//\tcode 2 ms\npackage p\n\n// A is 3 ms, `4 ms`, \"5 ms\".\ntype A struct {\n\tb int // 6\u00a0ms, 6 ms\n}\n\n" +
		"// b is 7 ms.\ntype b struct {\n\tC int // 8 ms\n}\n\n// F is 9 ms.\nfunc F() {\n\t// 10 ms\n}\n\nconst (\n\tD = 1 // 11 ms\n)\n\n" +
		"// It has 12\n// ms.\nvar E = \"13 ms\"\n"
	const page = "1 ms, `2 ms`, 3\nms, [4 ms](5 ms), \"6 ms\", 7ms, 8 KiB, 9 %, 10 × 11, 12 mss\n```\n13 ms\n```\n\n    14 ms\n\n15 µs\n"
	for name, want := range map[string]string{
		"p.go": "1 ms, 3 ms, 6 ms, 9 ms, 11 ms, 12 ms", "p.md": "1 ms, 3 ms, 4 ms, 9 %, 10 ×, 15 µs", "p_test.go": "", "p.txt": "",
	} {
		text := source
		if name == "p.md" {
			text = page
		}
		left, err := proseOf(name, text)
		if err != nil || left != "" && len(left) != len(text) {
			t.Errorf("%s: %d bytes of %d are left, %v", name, len(left), len(text), err)
		}
		var found []string
		for _, figure := range measured.FindAllString(left, -1) {
			found = append(found, strings.Join(strings.Fields(figure), " "))
		}
		if got := strings.Join(found, ", "); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
	if _, err := proseOf("p.go", "package"); err == nil {
		t.Error("a file that is no Go is read")
	}
}
