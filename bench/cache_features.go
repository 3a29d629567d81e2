// SPDX-License-Identifier: MIT

package main

// cacheFeatures is the table of the features of caches, as read in their documentation. docs/comparison.md has it, too.
func cacheFeatures() table {
	return table{
		head: []string{"", "this library", "jellydator", "otter", "ristretto"},
		rows: [][]string{
			{"when a value ends", "`Expires`", "`Item.ExpiresAt`", "`Entry.ExpiresAt`", "`GetTTL`"},
			{"a look that extends nothing and counts as no use", "`Peek`", "no (`WithDisableTouchOnHit` counts)", "`GetEntryQuietly`", "no"},
			{"remove all", "`Purge`", "`DeleteAll`", "`InvalidateAll`", "`Clear`"},
			{"one atomic step on a key", "`Compute`", "`GetOrSet`, `GetAndDelete`", "`Compute`", "no"},
			{"one load for all callers", "`GetOrLoad`", "`SuppressedLoader`", "`Get`", "no"},
			{"a load that requests its own key", "an error", "waits for itself", "waits for itself", "no loads"},
			{"the load says how long its value lives", "`GetOrLoadTTL`", "the loader sets the item itself", "the calculator, from the value", "no"},
			{"the error of a load is remembered", "`ErrorTTL`, `GetOrLoadTTL`", "no", "no", "no"},
			{"an old value is returned while one load replaces it", "`RefreshAfter`", "no", "`RefreshCalculator`", "no"},
			{"bound by number", "`MaxEntries`", "`WithCapacity`", "`MaximumSize`", "`MaxCost`, with costs of 1"},
			{"bound by weight", "`MaxWeight`", "`WithMaxCost`", "`MaximumWeight`", "`MaxCost`"},
		},
	}
}
