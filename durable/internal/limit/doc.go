// SPDX-License-Identifier: MIT

// Package limit decides which waiting tasks may run next: a [Limiter] for each bounded kind, and a [Backlog] for
// overdue tasks. It knows neither the storage nor the runner of the tasks.
package limit
