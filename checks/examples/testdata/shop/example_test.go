// SPDX-License-Identifier: MIT

package shop_test

import "github.com/seed581295f1/timewheel/checks/examples/testdata/shop"

func Example() {
	shop.Open[int](shop.WithLight()).Sell()
	var Closed, Full = shop.Most, "Unseen" // names that are not those of the package
	_, _ = Closed, Full
}
