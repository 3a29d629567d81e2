// SPDX-License-Identifier: MIT

package pebble

import (
	"fmt"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine/kv"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// SalvageOn is Salvage on a file system for tests.
func SalvageOn(files vfs.FS, dir string, fn func(Salvaged) error) (SalvageReport, error) {
	return salvage(files, dir, fn)
}

// RowsOf returns the rows of a table or log with the given bytes, as text without the value. Each is mapped to the key of
// its task, or to an empty key if Salvage does not need the row.
func RowsOf(name string, data []byte) (rows map[string]string, damage []Damage) {
	rows = map[string]string{}
	see := func(r row) {
		key, _, _ := kv.IsPart(string(r.name))
		rows[fmt.Sprintf("%q %d %v", r.name, r.write, r.set)] = key
	}
	if strings.HasSuffix(name, ".sst") {
		return rows, tableRows(data, see)
	}
	return rows, logRows(data, fileNumber(name), see)
}

// NextDataBlock returns where the next whole block of a table begins.
func NextDataBlock(data []byte, from int) int { return nextDataBlock(data, from) }
