// SPDX-License-Identifier: MIT

// This program is built with the metrics, installed as by a user.
package main

import (
	"fmt"
	"log"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed581295f1/timewheel/metrics"
	"github.com/seed581295f1/timewheel/timewheel"
)

func main() {
	runs := metrics.NewRuns()
	tw, err := timewheel.New(time.Millisecond, 64, runs.Option())
	if err != nil {
		log.Fatal(err)
	}
	defer tw.Stop()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(tw, "user", metrics.WithRuns(runs)))
	families, err := registry.Gather()
	if err != nil || len(families) == 0 {
		log.Fatal("nothing is gathered: ", err)
	}
	fmt.Println("a metric of the wheel:", families[0].GetName())
}
