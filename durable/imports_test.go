// SPDX-License-Identifier: MIT

package durable_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Neither the scheduler nor the other packages and tests of its module import a database: a program that uses another
// engine does not even download one.
func TestImports_noDatabase(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-test", "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "/durable/engine/memory\n") {
		t.Errorf("go list prints no dependencies:\n%s", out)
	}
	for pkg := range strings.Lines(string(out)) {
		for _, database := range []string{"pebble", "pgx", "database/sql", "redis"} {
			if strings.Contains(pkg, database) {
				t.Errorf("package durable, or a test of its module, imports %s", pkg)
			}
		}
	}
}
