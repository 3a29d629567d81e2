// SPDX-License-Identifier: MIT

// Orders is the use case of the timing wheel: a shop that holds stock for each order until it is paid, for at most half
// an hour. A million orders may come within minutes; most are paid, and their tasks removed, before they are due. The
// program replays orders from a file, or from a generated sale, at many times their real speed. It ends with a report
// in which every unit of the stock is accounted for. Run it with -h for its flags.
package main

import "github.com/seed581295f1/timewheel/examples/internal/orders"

func main() { orders.Main(nil) }
