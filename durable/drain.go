// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Drain prevents nodes with that name from starting further runs, until [Scheduler.Undrain] is called. The drain takes
// effect within two seconds after Drain has returned nil. Other nodes then take over the waiting tasks. Runs in
// progress end as usual, and their results count. A drained node stays a member: it renews its lease, its verbs work,
// and its [NodeReport].Drained is true. Once its Running is also 0, the node can be stopped without causing a run to be
// repeated.
//
// The drain is stored with the tasks, so a node that restarts with the same name is still drained. Draining a drained
// node has no effect. If no node has the name, the error wraps ErrUnknownNode. On a store, no other node could take
// over the tasks, so the error wraps [errors.ErrUnsupported].
func (s *Scheduler) Drain(ctx context.Context, node string) error {
	if !s.reads.enter() {
		return stopped(ErrStopped, "Drain", node)
	}
	defer s.reads.leave()
	nodes, err := s.below.nodes(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(nodes, func(i NodeInfo) bool { return i.Name == node }) {
		return fmt.Errorf("%w %q", ErrUnknownNode, node)
	}
	return stopped(s.drain(ctx, func(names []string) []string {
		if i, drained := slices.BinarySearch(names, node); !drained {
			return slices.Insert(slices.Clone(names), i, node)
		}
		return names
	}), "Drain", node)
}

// Undrain ends the effect of Drain. Within two seconds, nodes with that name start runs again. If the name is not
// drained, Undrain has no effect.
func (s *Scheduler) Undrain(ctx context.Context, node string) error {
	return stopped(s.drain(ctx, func(names []string) []string {
		if i, drained := slices.BinarySearch(names, node); drained {
			return slices.Delete(slices.Clone(names), i, i+1)
		}
		return names
	}), "Undrain", node)
}

// drain changes the names of drained nodes.
func (s *Scheduler) drain(ctx context.Context, change func(names []string) []string) error {
	if s.ending.Load() {
		return ErrStopped
	}
	if _, store := s.below.(*keeper); store {
		return fmt.Errorf("durable: a store has one node: %w", errors.ErrUnsupported)
	}
	return s.below.setAll(ctx, func(to *settings) { to.drained = change(to.drained) })
}
