// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/sirupsen/logrus"
)

// A post sends mails repeatedly, using a durable scheduler on an engine in memory. A real engine is on disk.
type post struct {
	memory *memory.KV
	tasks  *durable.Scheduler
	rec    *dashboard.AttemptRecorder
}

func openPost(ctx context.Context) (*post, error) {
	p := &post{memory: memory.New(), rec: dashboard.NewAttemptRecorder()}
	log := logrus.New()
	log.SetOutput(io.Discard) // the page shows the problems
	var err error
	if p.tasks, err = durable.New(ctx, p.memory.Engine(), p.rec.Option(), durable.WithLogger(log)); err != nil {
		return nil, err
	}
	if err := p.tasks.Handle("newsletter.send", quick); err != nil {
		return nil, err
	}
	if err := p.tasks.Start(); err != nil {
		return nil, err
	}
	for i := range 50 {
		err := p.tasks.AddTask(ctx, durable.Task{Key: fmt.Sprintf("newsletter:%02d", i), Kind: "newsletter.send",
			Interval: time.Duration(1+i%5) * time.Second, Times: durable.Forever})
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// fill makes all further writes of the engine fail as if the disk were full.
func (p *post) fill() {
	p.memory.SetFault(fmt.Errorf("write /var/lib/mails/000042.log: %w", syscall.ENOSPC))
}
