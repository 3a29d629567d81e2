// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
)

// Drain prevents nodes with the given name from starting further runs until [Scheduler.Undrain] is called. The drain
// takes effect within two seconds after Drain has returned nil. Other nodes then take over the waiting tasks. Runs in
// progress end as usual, and their results count. A drained node stays a member: it renews its lease, its verbs work,
// and its [NodeReport].Drained is true. Once its Running and Held are also 0, the node can be stopped without causing a
// run to be repeated: the ends of its runs are stored.
//
// The drain is stored with the tasks, so a node that restarts with the same name is still drained. A later call to
// Drain deletes drains that are more than a day old and do not match the name of any node. Draining a drained node only
// renews its drain. If no node has the name, the error wraps ErrUnknownNode. On an own engine, no other node could take over
// the tasks, so the error wraps [errors.ErrUnsupported].
func (s *Scheduler) Drain(ctx context.Context, name string) error {
	if !s.reads.Enter() {
		return failed(ErrStopped, "Drain", name)
	}
	defer s.reads.Leave()
	if err := s.canDrain(); err != nil {
		return err
	}
	nodes, err := s.node.Nodes(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(nodes, func(i node.Info) bool { return i.Name == name }) {
		return fmt.Errorf("%w %q", ErrUnknownNode, name)
	}
	now := s.node.Now()
	return failed(s.drain(ctx, func(names map[string]int64) {
		for old, at := range names {
			here := slices.ContainsFunc(nodes, func(i node.Info) bool { return i.Name == old })
			if !here && at < now-int64(drainedFor) {
				delete(names, old)
			}
		}
		names[name] = now
	}), "Drain", name)
}

// drainedFor is how long the name of a drained node is kept while no node has it.
const drainedFor = 24 * time.Hour

// Undrain undoes the effect of Drain. Within two seconds, nodes with the given name resume starting runs. For a limit
// across all nodes, such a node counts as a new member. If the name is not drained, Undrain has no effect.
func (s *Scheduler) Undrain(ctx context.Context, name string) error {
	return failed(s.drain(ctx, func(names map[string]int64) { delete(names, name) }), "Undrain", name)
}

func (s *Scheduler) canDrain() error {
	if s.node.Owned() != nil {
		return fmt.Errorf("durable: this engine has one node: %w", errors.ErrUnsupported)
	}
	return nil
}

// drain changes the names of drained nodes.
func (s *Scheduler) drain(ctx context.Context, change func(names map[string]int64)) error {
	if s.ending.Load() {
		return ErrStopped
	}
	if err := s.canDrain(); err != nil {
		return err
	}
	return s.node.Change(ctx, func(to *node.Settings) {
		names := make(map[string]int64, len(to.Drained))
		maps.Copy(names, to.Drained)
		change(names)
		to.Drained = names
	})
}
