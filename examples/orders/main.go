// SPDX-License-Identifier: MIT

// Orders simulates the shop that the timing wheel was made for. The shop holds stock for each order until the order is
// paid, but for half an hour at most. A million orders may arrive within minutes. Most are paid before their tasks are
// due, and the tasks are removed.
//
// The program replays orders from a file or from a simulated sale, many times faster than they arrived. It ends with a
// report that accounts for every unit of the stock. Run it with -h for its flags.
package main

import "github.com/seed581295f1/timewheel/examples/internal/orders"

func main() { orders.Main(nil) }
