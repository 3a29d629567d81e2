// SPDX-License-Identifier: MIT

// This program is built with the engine on PostgreSQL, installed as by a user. It needs no server: it shows the SQL of
// the schema, and the error without a server.
package main

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/seed581295f1/timewheel/durable/postgres"
)

func main() {
	text, err := postgres.Schema(postgres.WithSchema("shop"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = postgres.Open(context.Background(), "postgres://127.0.0.1:1/shop?connect_timeout=5")
	fmt.Printf("the schema has %d tables; without a server Open fails: %v\n", strings.Count(text, "CREATE TABLE"), err != nil)
}
