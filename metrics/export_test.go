// SPDX-License-Identifier: MIT

package metrics

// Tests use these instead of a wheel and a scheduler.
var (
	NewCollectorOf          = newWheelCollector
	NewSchedulerCollectorOf = newSchedulerCollector
)
