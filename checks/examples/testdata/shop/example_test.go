// SPDX-License-Identifier: MIT

package shop_test

import "github.com/seed581295f1/timewheel/checks/examples/testdata/shop"

func Example() {
	shop.Open[int](shop.WithLight()).Sell()
	var Closed, Full = shop.Most, "Unseen" // names that do not belong to the package
	_, _ = Closed, Full
}
