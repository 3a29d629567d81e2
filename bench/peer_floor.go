// SPDX-License-Identifier: MIT

package main

import (
	"time"

	cmap "github.com/orcaman/concurrent-map/v2"
)

// floorName is the name of the peer that is the least a keyed timer costs.
const floorName = "floor"

// floorPeer is what no keyed timer on a concurrent-map can be cheaper than.
func floorPeer() definition {
	return definition{
		name:    floorName,
		about:   "no timer, only `SetIfAbsent` of a concurrent-map and one allocation of 80 bytes",
		keyed:   true,
		maxLive: 10_000_000,
		open: func(settings) (peer, error) {
			return &floor{index: cmap.New[*record]()}, nil
		},
	}
}

// floor is a map of records, without timers.
type floor struct {
	index cmap.ConcurrentMap[string, *record]
}

// record is 80 bytes with a pointer in it, as a timer's own memory has.
type record struct {
	key string
	_   [8]uint64
}

func (p *floor) add(_ int, key string, _ time.Duration) error {
	if !p.index.SetIfAbsent(key, &record{key: key}) {
		return errDuplicate
	}
	return nil
}

func (p *floor) remove(_ int, key string) error {
	if _, ok := p.index.Pop(key); !ok {
		return errMissing
	}
	return nil
}

func (p *floor) reschedule(string, time.Duration) error { return errNoVerb }

func (p *floor) stop() {}
