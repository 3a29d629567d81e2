// SPDX-License-Identifier: MIT

package testkit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Migrating fails the test unless every line of code in the right-hand column of a section's table in MIGRATING.md also
// appears, word for word, in migrating_test.go of the package under test. MIGRATING.md is in the directory root. The
// table must have at least the given number of rows. Migrating skips the test if the module is not in its repository.
func Migrating(t *testing.T, root, title string, least int) {
	t.Helper()
	source, err := os.ReadFile("migrating_test.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "MIGRATING.md"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the module is not in its repository")
	}
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## From "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| .* \\| `(.*)` \\|$").FindAllStringSubmatch(section, -1)
	if len(rows) < least {
		t.Errorf("the table on %s has %d rows", title, len(rows))
	}
	for _, row := range rows {
		if !strings.Contains(string(source), "\t"+row[1]+"\n") {
			t.Errorf("not compiled: %s", row[1])
		}
	}
}
