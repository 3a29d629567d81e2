// SPDX-License-Identifier: MIT

package main

import (
	"time"

	cmap "github.com/orcaman/concurrent-map/v2"
	"github.com/panjf2000/ants/v2"
)

// floorName is the name of the peer that is the lower bound for the cost of a keyed timer.
const floorName = "floor"

// floorPeer is the lower bound for a keyed timer on a concurrent-map.
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

// record is 80 bytes with a pointer, like the memory of a timer.
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

const (
	fireFloorName = "fire-floor"
	antsName      = "ants"
	antsModule    = "github.com/panjf2000/ants/v2"
)

// fireFloorPeer is the lower bound for firing many keyed jobs at one instant. It knows the instant and the keys, and
// keeps no times.
func fireFloorPeer() definition {
	return definition{
		name: fireFloorName,
		about: "no timers: at the due instant of the last add, two goroutines take all keys out of a " +
			"concurrent-map, half each, and call the job",
		keyed:   true,
		timers:  true,
		maxLive: 10_000_000,
		only:    "burst",
		open: func(s settings) (peer, error) {
			return &fireFloor{floor: floor{index: cmap.New[*record]()}, fire: s.fire}, nil
		},
	}
}

// fireFloor is a floor that fires. One goroutine makes all adds.
type fireFloor struct {
	floor
	fire  func(key string)
	keys  []string
	timer *time.Timer
}

func (p *fireFloor) add(id int, key string, d time.Duration) error {
	if err := p.floor.add(id, key, d); err != nil {
		return err
	}
	p.keys = append(p.keys, key)
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.fireAll)
	} else {
		p.timer.Reset(d)
	}
	return nil
}

// fireAll fires all added timers.
func (p *fireFloor) fireAll() {
	all := p.keys
	p.keys = nil
	run := func(keys []string) {
		for _, key := range keys {
			if p.remove(0, key) == nil {
				p.fire(key)
			}
		}
	}
	half := len(all) / 2
	go run(all[:half])
	run(all[half:])
}

// antsPeer is the floor in a program that imports ants, whose default pool runs two goroutines from the start. The
// figures of our own wheel include them.
func antsPeer() definition {
	d := floorPeer()
	d.name, d.module, d.only, d.silence = antsName, antsModule, "idle", ants.Release
	d.about = "no timers, only the map of the floor in a program that imports ants and does not use it"
	return d
}
