// SPDX-License-Identifier: MIT

package dashboard_test

import (
	"context"
	"crypto/subtle"
	"errors"
	"log"
	"net/http"
	"time"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A node on an engine of package durable/postgres. The page warns when acknowledged tasks can be lost.
func ExampleSource_WithEngine() {
	var e interface {
		engine.Engine
		engine.HealthReporter
	} // from postgres.Open
	s, err := durable.New(context.Background(), e)
	if err != nil {
		log.Fatal(err)
	}
	source := dashboard.Scheduler("shop", s, nil).WithEngine(e)
	http.Handle("/debug/tasks/", dashboard.Handler([]dashboard.Source{source}))
}

// The page says that a system is down which the handlers of a kind call.
func ExampleSource_WithNotes() {
	var s *durable.Scheduler   // from durable.New
	var down func() *time.Time // since when the mail server does not answer, or nil
	source := dashboard.Scheduler("shop", s, nil).WithNotes(func() []dashboard.Note {
		if since := down(); since != nil {
			return []dashboard.Note{{Kind: "mail", Since: *since, Text: "The mail server is down"}}
		}
		return nil
	})
	http.Handle("/debug/tasks/", dashboard.Handler([]dashboard.Source{source}))
}

// Two wheels on one page, and a password for users who may make changes.
func Example() {
	var sources []dashboard.Source
	for _, name := range []string{"orders", "sessions"} {
		rec := dashboard.NewRecorder()
		tw, err := timewheel.New(10*time.Millisecond, 1024, rec.Option())
		if err != nil {
			log.Fatal(err)
		}
		sources = append(sources, dashboard.Wheel(name, tw, rec))
	}

	password := []byte("from your configuration")
	http.Handle("/debug/timewheel/", dashboard.Handler(sources,
		dashboard.AllowHosts("shop.internal.example.com"),
		dashboard.AllowControl(func(r *http.Request) error {
			_, given, _ := r.BasicAuth() // which the middleware in front of the handler asks the browser for
			if subtle.ConstantTimeCompare([]byte(given), password) != 1 {
				return errors.New("only for operators")
			}
			return nil
		}),
	))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}

// A durable scheduler on the page, with the times of its runs, its payloads, and a record of changes and their authors.
func ExampleScheduler() {
	rec := dashboard.NewAttemptRecorder()
	s, err := durable.New(context.Background(), memory.New().Engine(), rec.Option())
	if err != nil {
		log.Fatal(err)
	}
	user := func(r *http.Request) string {
		name, _, _ := r.BasicAuth()
		return name
	}
	operators := func(r *http.Request) error {
		if user(r) == "" {
			return errors.New("only for operators")
		}
		return nil
	}
	http.Handle("/debug/tasks/", dashboard.Handler([]dashboard.Source{dashboard.Scheduler("shop", s, rec)},
		dashboard.AllowControl(operators),
		dashboard.AllowPayloads(operators),
		dashboard.WithAudit(user, func(e dashboard.AuditEntry) {
			log.Printf("%s: %s of %d tasks of %s %s: %v", e.Who, e.Action, e.Tasks, e.Source, e.Key, e.Err)
		}),
	))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}
