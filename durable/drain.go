// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
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
func (s *Scheduler) Drain(ctx context.Context, node string) error {
	if !s.reads.enter() {
		return stopped(ErrStopped, "Drain", node)
	}
	defer s.reads.leave()
	if err := s.canDrain(); err != nil {
		return err
	}
	nodes, err := s.node.nodes(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(nodes, func(i NodeInfo) bool { return i.Name == node }) {
		return fmt.Errorf("%w %q", ErrUnknownNode, node)
	}
	now := s.node.now()
	return stopped(s.drain(ctx, func(names map[string]int64) {
		for name, at := range names {
			here := slices.ContainsFunc(nodes, func(i NodeInfo) bool { return i.Name == name })
			if !here && at < now-int64(drainedFor) {
				delete(names, name)
			}
		}
		names[node] = now
	}), "Drain", node)
}

// drainedFor is how long the name of a drained node is kept while no node has it.
const drainedFor = 24 * time.Hour

// Undrain undoes the effect of Drain. Within two seconds, nodes with the given name resume starting runs. For a limit
// across all nodes, such a node counts as a new member. If the name is not drained, Undrain has no effect.
func (s *Scheduler) Undrain(ctx context.Context, node string) error {
	return stopped(s.drain(ctx, func(names map[string]int64) { delete(names, node) }), "Undrain", node)
}

func (s *Scheduler) canDrain() error {
	if s.node.alone {
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
	return s.node.setAll(ctx, func(to *settings) {
		names := make(map[string]int64, len(to.drained))
		maps.Copy(names, to.drained)
		change(names)
		to.drained = names
	})
}
