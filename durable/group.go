// SPDX-License-Identifier: MIT

package durable

// A group is what the keeper commits at once: the operations that waited, each of which sees what those before
// it have done. Nothing outside changes before the commit, so an operation may fail without a trace, and the
// group may, too.
type group struct {
	k       *keeper
	touched map[string]*touched
	order   []*touched // as they were touched first
	tally   tally      // what is to be counted
	parked  *record    // the last of those that were parked
}

// tally is what the operations of a group have done.
type tally struct{ added, removed, parked, succeeded, failed uint64 }

// touched is what has become of one key.
type touched struct {
	key string
	was *record // the one in the store, or nil
	now *record // the one it has now, or nil
}

// find returns the task of the key, or nil.
func (g *group) find(key string) (*record, error) {
	if t := g.touched[key]; t != nil {
		return t.now, nil
	}
	if l := g.k.live[key]; l != nil {
		return l.rec, nil
	}
	if g.k.prints != nil && g.k.prints.free(key) {
		return nil, nil
	}
	rec, err := getRecord(g.k.store, key)
	return rec, g.k.readError(err)
}

// put makes next the task of the key, or nobody, if it is nil. was is what find has returned.
func (g *group) put(key string, was, next *record) {
	t := g.touched[key]
	if t == nil {
		t = &touched{key: key, was: was}
		if g.touched == nil {
			g.touched = make(map[string]*touched)
		}
		g.touched[key] = t
		g.order = append(g.order, t)
	}
	t.now = next
}

// changes returns what the store has to do.
func (g *group) changes() []Change {
	all := make([]Change, 0, len(g.order))
	for _, t := range g.order {
		c := Change{Key: t.key, From: None, Due: None}
		if t.was != nil {
			c.From = t.was.due
		}
		if t.now != nil {
			c.Due, c.Data = t.now.due, t.now.encode()
		}
		if c.From != None || c.Due != None {
			all = append(all, c)
		}
	}
	return all
}
