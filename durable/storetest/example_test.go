// SPDX-License-Identifier: MIT

package storetest_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/durable/storetest"
)

// The body of the test that every store should have.
func ExampleTest() {
	var t *testing.T // of TestStore(t *testing.T)

	storetest.Test(t, func(t *testing.T) storetest.Open {
		store := memstore.New() // or the directory of a store on the disk
		return func() (durable.Store, error) {
			store = store.Reopen()
			return store, nil
		}
	})
}
