// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/descriptors"
)

// The file descriptors of the process are divided at the start, so that neither callers nor receivers can take the
// store's share, which would end it. These are the shares of the others.
const (
	ownDescriptors = 24 // standard streams, pollers, listeners, and files that are read from time to time
	adminPart      = 16 // the reciprocal of the operators' share
	callersPart    = 4  // the reciprocal of the callers' share of the others, if webhooks need the rest
	leastCallers   = 12

	mostNamed           = 20 // kinds in a message
	databaseConnections = 16 // the default of package postgres
	databaseDescriptors = 8  // of a database, besides the connections
)

// A division says how many file descriptors each use may have.
type division struct {
	limit    int // of the process
	callers  int // connections of callers
	admin    int // connections of operators
	webhooks int
	least    int // for one webhook of each kind
	wanted   int // for all webhooks that the kinds may call at once
	enough   int // a limit of the process at which webhooks have as many as wanted; 0 if they have them
}

// divide divides the descriptors of a process with a store at the place. The error says that there are too few.
func (c *Config) divide(place Place) (division, error) {
	d := division{limit: place.descriptors}
	if d.limit == 0 {
		d.limit = descriptors.Limit()
	}
	reserve := func(limit int) int { // of all but webhooks, callers and operators
		n := ownDescriptors + mostRefusing
		switch {
		case place.Dir != "":
			n += pebble.MaxDescriptors(limit)
		case place.Connections > 0:
			n += databaseDescriptors + place.Connections
		default:
			n += databaseDescriptors + databaseConnections
		}
		if c.Admin != nil {
			n += limit / adminPart
		}
		return n
	}
	if c.Admin != nil {
		d.admin = d.limit / adminPart
	}
	for _, of := range c.Kinds {
		d.least += of.cost()
		d.wanted += of.cost() * of.Concurrency
	}
	webhooks := func(limit int) int {
		rest := limit - reserve(limit)
		return rest - max(rest/callersPart, leastCallers)
	}
	d.webhooks = min(d.wanted, webhooks(d.limit))
	d.callers = d.limit - reserve(d.limit) - d.webhooks
	if d.webhooks == d.wanted {
		return d, nil
	}
	// raise returns a limit that suffices for the webhooks. The runtime may use one less.
	raise := func(most int) int {
		limit := d.limit + 1
		for webhooks(limit) < most || webhooks(limit-1) < most {
			limit++
		}
		return limit
	}
	d.enough = raise(d.wanted)
	if d.webhooks < d.least {
		return d, fmt.Errorf("the process may have %d file descriptors open, and needs at least %d for this configuration: "+
			"raise the limit (ulimit -n, LimitNOFILE of systemd)", d.limit, raise(d.least))
	}
	return d, nil
}

// cost returns how many descriptors an attempt takes at most. While it looks up a name, or connects to the addresses of
// both families, it takes two.
func (of *Kind) cost() int {
	if of.Elsewhere {
		return 0
	}
	if _, err := netip.ParseAddr(of.target.Hostname()); err == nil {
		return 1
	}
	return 2
}

// fit lowers the concurrency of the kinds to what the descriptors allow. It lowers each in proportion, so that a hanging
// receiver still delays no other kind. It returns the concurrency that the configuration gives to each lowered kind.
func (c *Config) fit(d division) (lowered map[string]int) {
	lowered = make(map[string]int)
	if d.webhooks == d.wanted {
		return lowered
	}
	for name, of := range c.Kinds {
		if n := 1 + (of.Concurrency-1)*(d.webhooks-d.least)/(d.wanted-d.least); n < of.Concurrency {
			lowered[name], of.Concurrency = of.Concurrency, n
		}
	}
	return lowered
}

// shortage returns a remedy if the descriptors do not suffice for the kinds, or "".
func (c *Config) shortage(d division, lowered map[string]int) string {
	if len(lowered) == 0 {
		return ""
	}
	var kinds []string
	for i, name := range slices.Sorted(maps.Keys(lowered)) {
		if i == mostNamed {
			kinds = append(kinds, fmt.Sprintf("and %d more kinds", len(lowered)-i))
			break
		}
		kinds = append(kinds, fmt.Sprintf("%s %d of %d", name, c.Kinds[name].Concurrency, lowered[name]))
	}
	return fmt.Sprintf("the process may have %d file descriptors open, of which %d are for webhooks, and the kinds may need %d. "+
		"The concurrency is lowered: %s. Further attempts wait. Raise the limit to %d (ulimit -n, LimitNOFILE of systemd), or "+
		"lower the concurrency of kinds", d.limit, d.webhooks, d.wanted, strings.Join(kinds, ", "), d.enough)
}

// CheckDescriptors checks whether the file descriptors of this process suffice for the configuration. It returns an error
// if they do not suffice to start, and a remedy if fewer webhooks than configured can be called at once, or "".
// If the place has neither a directory nor a database, it is an embedded store.
func (c *Config) CheckDescriptors(place Place) (shortage string, err error) {
	if place.DB == "" && place.Dir == "" {
		place.Dir = "."
	}
	d, err := c.divide(place)
	if err != nil {
		return "", err
	}
	return c.shortage(d, c.fit(d)), nil
}

// A lookout logs when attempts wait for descriptors or connections are refused, and when neither has happened for
// shortFor.
type lookout struct {
	log     *slog.Logger
	refused uint64    // connections so far
	until   time.Time // when the shortage ends; zero if there is none
}

const shortFor = 10 * time.Second

func (l *lookout) look(waiting int, refused uint64, now time.Time) {
	short := waiting > 0 || refused > l.refused
	if short {
		if l.until.IsZero() {
			l.log.Warn("file descriptors are short: attempts wait, or connections of callers are refused", "waiting", waiting,
				"refused", refused-l.refused)
		}
		l.until = now.Add(shortFor)
	} else if !l.until.IsZero() && now.After(l.until) {
		l.log.Info("file descriptors suffice again")
		l.until = time.Time{}
	}
	l.refused = refused
}

// waiting returns how many attempts wait only because the concurrency of their kind is lowered.
func (srv *Server) waiting() (n int) {
	if len(srv.lowered) == 0 {
		return 0
	}
	for _, k := range srv.s.Kinds() {
		if was, is := srv.lowered[k.Kind]; is {
			if now := srv.cfg.Kinds[k.Kind].Concurrency; k.Running >= now {
				n += min(k.Waiting, was-now)
			}
		}
	}
	return n
}
