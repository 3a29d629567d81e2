// SPDX-License-Identifier: MIT

package metrics

// What a test puts in the place of a wheel and a scheduler.
var (
	NewCollectorOf          = newWheelCollector
	NewSchedulerCollectorOf = newSchedulerCollector
)
