// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// baseline is the peer every ratio is against: what a user writes by hand.
const baseline = "stdlib-keyed"

// peer is one timer library behind the verbs that are measured. A timer is named twice: by its key, and by
// the place of that key in the list of keys, under which a peer without keys stores the handle it got, as
// its user would.
type peer interface {
	// add starts a timer that calls the fire function of the settings with its key after d.
	add(id int, key string, d time.Duration) error

	// remove ends the timer of that key, or for a peer without keys the one whose handle is stored under id.
	remove(id int, key string) error

	// reschedule lets the timer of that key fire d from now. A peer without keys does not have it.
	reschedule(key string, d time.Duration) error

	// stop ends the goroutines of the peer.
	stop()
}

// settings are what a peer is opened with.
type settings struct {
	tick time.Duration    // resolution of a wheel
	ids  int              // how many different keys there will be
	fire func(key string) // what every timer does when it is due; safe for concurrent use

	more []timewheel.Option // for our own wheel
}

// definition says what a peer is and how it is opened.
type definition struct {
	name   string
	module string // module whose version is reported; "" for the standard library
	about  string // configuration and remarks, for the notes of the report

	keyed      bool // its verbs take a key
	timers     bool // it fires; without it only add and remove are measured
	concurrent bool // jobs that are due together run at the same time
	ticks      bool // it has a tick
	fixedTick  bool // its tick is always 10 ms
	page       bool // timewheel/dashboard shows it
	maxLive    int  // live timers it is measured with at most

	only string // the cases it is for, by how their names begin; "" is all
	uses string // a module that it imports, and whose goroutines its users have with it

	open func(s settings) (peer, error)

	// silence ends the goroutines that importing the library has started, nil if there are none. A process that
	// measures another peer calls it once; one that measures this peer does not, for a user has them too.
	silence func()
}

// withFront returns the definition of the same engine with a concurrent-map from key to timer in front.
func (d definition) withFront(name string, open func(s settings) (peer, error)) definition {
	d.name, d.keyed, d.open, d.silence = name, true, open, nil
	d.about += "; with a concurrent-map in front, as `" + baseline + "` has"
	return d
}

// wheelSlots is the number of slots of each wheel that asks for one.
const wheelSlots = 1024

var (
	errDuplicate = errors.New("this key is live already")
	errMissing   = errors.New("no timer has this key")
	errNoVerb    = errors.New("the peer does not have this verb")
)

// definitions lists the peers in the order of the tables.
func definitions() []definition {
	return []definition{
		timewheelPeer(),
		hierarchicalPeer(),
		stdlibKeyedPeer(),
		antlabsKeyedPeer(),
		russellluoKeyedPeer(),
		rfyiamcoolKeyedPeer(),
		goZeroPeer(),
		stdlibPeer(),
		antlabsPeer(),
		russellluoPeer(),
		rfyiamcoolPeer(),
		floorPeer(),
		fireFloorPeer(),
		antsPeer(),
	}
}

// silenceOthers ends what importing the other peers has started.
func silenceOthers(measured definition) {
	for _, d := range definitions() {
		if d.silence != nil && d.module != measured.module && d.module != measured.uses {
			d.silence()
		}
	}
}

// selectPeers picks peers by a comma-separated list of names, in the order of the tables.
func selectPeers(list string) ([]definition, error) {
	return pick("peer", list, definitions(), peerName)
}

// pick returns the items whose names are in a comma-separated list, in the order of items. An unknown name
// is an error that lists the names there are.
func pick[T any](kind, list string, items []T, name func(T) string) ([]T, error) {
	wanted := map[string]bool{}
	for _, n := range strings.Split(list, ",") {
		wanted[strings.TrimSpace(n)] = true
	}
	var picked []T
	var names []string
	for _, item := range items {
		names = append(names, name(item))
		if wanted[name(item)] {
			picked = append(picked, item)
			delete(wanted, name(item))
		}
	}
	for n := range wanted {
		return nil, fmt.Errorf("unknown %s %q; the valid ones are: %s", kind, n, strings.Join(names, ", "))
	}
	return picked, nil
}

// peerName returns the name of a peer.
func peerName(d definition) string { return d.name }
