// SPDX-License-Identifier: MIT

// Orders is what the timing wheel was made for: a shop that holds stock for each order until it is paid, but
// for half an hour at most. A million orders may come within minutes; most are paid, and their tasks removed,
// before they are due. It works orders from a file, or of a sale that it makes up, many times as fast as they
// came, and ends with a report in which every unit of the stock is accounted for. Run it with -h for its
// flags.
package main

import "github.com/seed581295f1/timewheel/examples/internal/orders"

func main() { orders.Main(nil) }
