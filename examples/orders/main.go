// SPDX-License-Identifier: MIT

// Orders is what the timing wheel was made for: a shop that holds stock for each order until it is paid, but for half
// an hour at most. A million orders may come within minutes; most are paid, and their tasks removed, before they are
// due. It replays orders from a file, or of an invented sale, many times faster than they came. It ends with a report
// that accounts for every unit of the stock. Run it with -h for its flags.
package main

import "github.com/seed581295f1/timewheel/examples/internal/orders"

func main() { orders.Main(nil) }
