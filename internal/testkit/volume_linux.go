// SPDX-License-Identifier: MIT

package testkit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallVolume mounts a file system of the given size until the test ends, and returns its directory. It skips the test
// if mounting is not possible, because mounting requires root privileges, which not every container has.
func SmallVolume(t *testing.T, megabytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Fill fills the volume until only the given number of megabytes is free. Removing the file whose name it returns frees
// the space again.
func Fill(t *testing.T, volume string, free int) (name string) {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(volume, &disk); err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(volume, "filler")
	err := os.WriteFile(name, make([]byte, int(disk.Bfree)*int(disk.Bsize)-free<<20), 0o600)
	if err != nil && !errors.Is(err, syscall.ENOSPC) { // others may have written in the meantime
		t.Fatal(err)
	}
	return name
}
