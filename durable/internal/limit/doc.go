// SPDX-License-Identifier: MIT

// Package limit decides which of the waiting tasks may run next: a [Limiter] for each kind that is bounded, and a
// [Backlog] for overdue tasks. It knows neither what keeps the tasks nor what runs them.
package limit
