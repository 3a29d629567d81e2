// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Drain keeps the nodes of that name from starting further runs, until [Scheduler.Undrain]. When Drain has returned
// nil, no node of that name starts a run after two seconds, and other nodes take over its waiting tasks. Runs in
// progress end as usual, and their results count. The node stays a member: it renews its lease, its verbs work, and
// [NodeReport].Drained says that it is drained. When its Running is 0 as well, it can be stopped without a repeated run.
//
// The drain is stored with the tasks: a node that starts again under the name is still drained. Draining a drained node
// does nothing. If no node has the name, the error wraps ErrUnknownNode. A store has no other node that could take over:
// there the error wraps [errors.ErrUnsupported].
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

// Undrain ends a Drain: within two seconds the nodes of that name start runs again. If the name is not drained, Undrain
// does nothing.
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
