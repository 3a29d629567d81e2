// SPDX-License-Identifier: MIT

// Orders-durable is the shop from examples/orders, with tasks that survive the process. The tasks are in a durable
// scheduler, and the outcome of each order is in a separate file, the book. Kill the program at any time and start it
// again with the same flags. It continues where it left off, until every unit of the stock is accounted for. Run it
// with -h for its flags.
package main

import (
	"github.com/seed581295f1/timewheel/examples/internal/orders"
	"github.com/seed581295f1/timewheel/examples/internal/tasks"
)

func main() {
	orders.Main(func(dir string, expire func(id string) error) (orders.Tasks, error) {
		return tasks.Open(dir, expire)
	})
}
