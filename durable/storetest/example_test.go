// SPDX-License-Identifier: MIT

package storetest_test

import (
	"io"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/durable/storetest"
)

// The body of the test for a store.
func ExampleTest() {
	var t *testing.T // of TestStore(t *testing.T)

	storetest.Test(t, func(t *testing.T) storetest.Open {
		store := memstore.New() // or the directory of a store on disk
		return func() (engine.Store, error) {
			store = store.Reopen()
			return store, nil
		}
	})
}

// A store that is a Backuper has this test as well.
func ExampleTestBackup() {
	var t *testing.T // of TestBackup(t *testing.T)

	open := func(dir string) storetest.Open {
		return func() (engine.Store, error) { return memstore.New(), nil } // or the store of the directory
	}
	storetest.TestBackup(t, func(t *testing.T) storetest.Open {
		return open(t.TempDir())
	}, func(t *testing.T, copy io.Reader) storetest.Open {
		dir := t.TempDir()
		// Unpack the copy into the directory.
		return open(dir)
	})
}
