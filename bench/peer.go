// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// baseline is the denominator of every ratio: the code that a user would write.
const baseline = "stdlib-keyed"

// peer is one timer library behind the measured verbs. A timer is named twice: by its key, and by the index of that key
// in the list of keys. A peer without keys stores the timer's handle under the index, as its user would.
type peer interface {
	// add starts a timer that calls the fire function of the settings with its key after d.
	add(id int, key string, d time.Duration) error

	// remove ends the timer of that key. A peer without keys ends the timer whose handle is stored under id.
	remove(id int, key string) error

	// reschedule lets the timer of that key fire d from now. A peer without keys does not have it.
	reschedule(key string, d time.Duration) error

	// stop ends the goroutines of the peer.
	stop()
}

// settings are the settings of a peer.
type settings struct {
	tick time.Duration    // resolution of a wheel
	ids  int              // number of different keys
	fire func(key string) // called by every timer when it is due; safe for concurrent use

	more []timewheel.Option // for our own wheel
}

// definition describes a peer and how to open it.
type definition struct {
	name   string
	module string // module whose version is reported; "" for the standard library
	about  string // configuration and remarks, for the notes of the report

	keyed      bool // its verbs take a key
	timers     bool // it fires; without it only add and remove are measured
	concurrent bool // jobs that are due together run concurrently
	ticks      bool // it has a tick
	fixedTick  bool // its tick is always 10 ms
	page       bool // timewheel/dashboard shows it
	maxLive    int  // maximal number of live timers in its measurements

	only string // prefix of the names of its cases; "" is all
	uses string // a module that it imports, whose goroutines its users also get

	open func(s settings) (peer, error)

	// silence ends the goroutines that importing the library has started, nil if there are none. A process that
	// measures another peer calls it once. A process that measures this peer does not, because a user has these
	// goroutines too.
	silence func()
}

// withFront returns the definition of the same engine with a concurrent-map from key to timer in front.
func (d definition) withFront(name string, open func(s settings) (peer, error)) definition {
	d.name, d.keyed, d.open, d.silence = name, true, open, nil
	d.about += "; with a concurrent-map in front, as `" + baseline + "` has"
	return d
}

// wheelSlots is the number of slots of each wheel that needs one.
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

// silenceOthers ends the goroutines started by importing the other peers.
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

// pick returns the items whose names are in a comma-separated list, in the order of items. An unknown name is an error
// that lists the known names.
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
