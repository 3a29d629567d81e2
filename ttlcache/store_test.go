// SPDX-License-Identifier: MIT

package ttlcache

import "testing"

// A map that has shrunk a lot is replaced, so that its memory is freed. A map that was never large is kept.
func TestMapStore_room_isGivenBack(t *testing.T) {
	for _, c := range []struct{ most, left, kept int }{
		{10 * small, 10*small/shrink - 1, 10*small/shrink - 1},
		{10 * small, 10 * small / shrink, 10 * small},
		{small, 1, small},
		{small + 1, 1, (small+1)/shrink - 1},
	} {
		s := newMapStore[int, int]()
		for i := range c.most {
			s.put(&item[int, int]{key: i}, 0)
		}
		for i := c.left; i < c.most; i++ {
			s.remove(i)
		}
		if s.most != c.kept {
			t.Errorf("of %d entries %d are left, in the room for %d, want that for %d", c.most, c.left, s.most, c.kept)
		}
		for i := range c.left {
			if s.get(i) == nil {
				t.Fatalf("of %d entries number %d of %d is gone", c.most, i, c.left)
			}
		}
	}
}
