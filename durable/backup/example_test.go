// SPDX-License-Identifier: MIT

package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/backup"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// An engine in memory has no backup; the engine of package durable/pebble has one.
func ExampleHandler() {
	s, err := durable.New(context.Background(), memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(context.Background()) }()
	mux := http.NewServeMux()
	mux.Handle("/debug/timewheel/backup", backup.Handler(s, func(r *http.Request) error {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			return errors.New("the password is wrong")
		}
		return nil
	}))
	web := httptest.NewServer(mux)
	defer web.Close()

	response, err := http.Post(web.URL+"/debug/timewheel/backup", "", nil)
	if err != nil {
		log.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	fmt.Printf("%s: %s", response.Status, text)
	// Output: 403 Forbidden: the password is wrong
}
