// SPDX-License-Identifier: MIT

package pebble

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// SalvageOn is Salvage on a file system for tests.
func SalvageOn(files vfs.FS, dir string, fn func(Salvaged) error) (SalvageReport, error) {
	return salvage(files, dir, fn)
}

// RowsOf returns the rows of a table or log with the given bytes, as text without the value, each mapped to its task
// key.
func RowsOf(name string, data []byte) (rows map[string]string, damage []Damage) {
	rows = map[string]string{}
	see := func(r row) {
		key := ""
		switch {
		case len(r.name) > 9 && r.name[0] == 'd':
			key = string(r.name[9:])
		case len(r.name) > 1 && (r.name[0] == 'k' || r.name[0] == 'f'):
			key = string(r.name[1:])
		}
		rows[fmt.Sprintf("%q %d %v", r.name, r.write, r.set)] = key
	}
	if strings.HasSuffix(name, ".sst") {
		return rows, tableRows(data, see)
	}
	return rows, logRows(data, fileNumber(name), see)
}

// NextDataBlock returns where the next whole block of a table begins.
func NextDataBlock(data []byte, from int) int { return nextDataBlock(data, from) }
