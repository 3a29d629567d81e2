// SPDX-License-Identifier: MIT

package main

import "slices"

// median returns the middle of the values, or the mean of the two in the middle; ok is false if there are
// none.
func median(values []float64) (m float64, ok bool) {
	n := len(values)
	if n == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, true
}

// results contains all measurements.
type results struct {
	samples []sample
}

// values returns a figure of a peer in a case, by round.
func (r results) values(peer, bench, figure string) map[int]float64 {
	byRound := map[int]float64{}
	for _, s := range r.samples {
		if s.Peer == peer && s.Case == bench {
			if v, ok := s.Figures[figure]; ok {
				byRound[s.Round] = v
			}
		}
	}
	return byRound
}

// median returns the median over the rounds.
func (r results) median(peer, bench, figure string) (float64, bool) {
	var all []float64
	for _, v := range r.values(peer, bench, figure) {
		all = append(all, v)
	}
	return median(all)
}

// worst returns the largest value of all rounds. Early and lost jobs are reported this way, because a fault in one
// round of five is a fault.
func (r results) worst(peer, bench, figure string) (worst float64, ok bool) {
	for _, v := range r.values(peer, bench, figure) {
		worst, ok = max(worst, v), true
	}
	return worst, ok
}

// troubles returns how many jobs of a peer were early and how many lost: in the case, or, if nothing falls due in it,
// in the case with the most runs.
func (r results) troubles(peer, bench string) (early, lost int, ok bool) {
	if _, fires := r.worst(peer, bench, "lost"); !fires {
		bench = "fire"
	}
	e, _ := r.worst(peer, bench, "early")
	l, ok := r.worst(peer, bench, "lost")
	return int(e), int(l), ok
}

// ratio returns the median of the ratios to another peer, each within one round.
func (r results) ratio(peer, to, bench, figure string) (float64, bool) {
	return medianRatio(r.values(peer, bench, figure), r.values(to, bench, figure))
}

// growth returns the median of the ratios of a figure between two cases, each within one round.
func (r results) growth(peer, small, large, figure string) (float64, bool) {
	return medianRatio(r.values(peer, large, figure), r.values(peer, small, figure))
}

// medianRatio returns the median of the ratios over the rounds that both have.
func medianRatio(values, bases map[int]float64) (float64, bool) {
	var ratios []float64
	for round, v := range values {
		if base, ok := bases[round]; ok && base != 0 {
			ratios = append(ratios, v/base)
		}
	}
	return median(ratios)
}

// failure returns why a peer has no figures in a case, if it was tried.
func (r results) failure(peer, bench string) string {
	for _, s := range r.samples {
		if s.Peer == peer && s.Case == bench && s.Failure != "" {
			return s.Failure
		}
	}
	return ""
}

// rounds returns how many rounds there were.
func (r results) rounds() int {
	n := 0
	for _, s := range r.samples {
		n = max(n, s.Round+1)
	}
	return n
}

// tried reports whether a peer was measured in any case.
func (r results) tried(peer string) bool {
	return slices.ContainsFunc(r.samples, func(s sample) bool { return s.Peer == peer })
}

// ran reports whether the case was run.
func (r results) ran(bench string) bool {
	return slices.ContainsFunc(r.samples, func(s sample) bool { return s.Case == bench })
}
