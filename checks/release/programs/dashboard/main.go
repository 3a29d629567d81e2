// SPDX-License-Identifier: MIT

// This program is built with the dashboard, installed as by a user.
package main

import (
	"fmt"
	"log"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/timewheel"
)

func main() {
	rec := dashboard.NewRecorder()
	tw, err := timewheel.New(time.Millisecond, 64, rec.Option())
	if err != nil {
		log.Fatal(err)
	}
	tw.Start()
	defer tw.Stop()
	page := httptest.NewRecorder()
	h := dashboard.Handler([]dashboard.Source{dashboard.Wheel("wheel", tw, rec)})
	h.ServeHTTP(page, httptest.NewRequest("GET", "http://localhost/", nil))
	if page.Code != 200 || !strings.Contains(page.Body.String(), "<html") {
		log.Fatalf("the page has status %d", page.Code)
	}
	fmt.Println("a page of the dashboard:", page.Code, page.Header().Get("Content-Type"))
}
