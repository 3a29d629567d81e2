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

// SmallVolume mounts a file system of a few megabytes until the test ends. It skips the test if that is not possible:
// it needs the rights of root, which not every container has.
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

// Fill leaves the given number of megabytes of the volume free. Removing the file that it returns makes room.
func Fill(t *testing.T, volume string, free int) (name string) {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(volume, &disk); err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(volume, "filler")
	err := os.WriteFile(name, make([]byte, int(disk.Bfree)*int(disk.Bsize)-free<<20), 0o600)
	if err != nil && !errors.Is(err, syscall.ENOSPC) { // others may have written meanwhile
		t.Fatal(err)
	}
	return name
}
