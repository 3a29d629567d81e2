// SPDX-License-Identifier: MIT

// Package limit decides which of the waiting tasks may run next. It knows neither what keeps the tasks nor what runs
// them.
package limit
