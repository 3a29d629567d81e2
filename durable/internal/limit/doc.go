// SPDX-License-Identifier: MIT

// Package limit decides which waiting tasks may run next. A [Limiter] does so for each bounded kind, and a [Backlog]
// for overdue tasks. The package is independent of how tasks are stored and run.
package limit
