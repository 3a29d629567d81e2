// SPDX-License-Identifier: MIT

// This program is built with a pool, installed as by a user.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/seed581295f1/timewheel/pool"
)

func main() {
	p, err := pool.New(2)
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Submit(func() { fmt.Println("a job of the pool") }); err != nil {
		log.Fatal(err)
	}
	if err := p.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
}
