// SPDX-License-Identifier: MIT

// Package serve is the service of the command: durable timers for programs in any language. Callers add tasks over HTTP,
// and the webhook of a task's kind is called when the task is due.
//
// It uses only the public API of package durable and of its stores.
//
// # Callers
//
// A token has rights for prefixes of keys and for kinds. Without tokens every caller may do everything, so the service
// then listens only on loopback or on a Unix socket. Bodies are bounded, and are kept only after the token has been
// checked. A refused body is read and dropped, within a bound of bytes and of time, so that its sender reads the answer.
//
// The kind of an existing task is checked by a separate read before the change. If another caller replaces the task in
// between with one of another kind, the change is made without a right to that kind. Prefixes have no such gap.
//
// # Operators
//
// A command of an operator runs in the service, on its scheduler. Package main has the commands, and passes a function
// that runs one. The operator's program shows the outputs and the exit code.
//
// An operator may be limited to prefixes and kinds. Package main puts a limited scheduler in place of the whole one, so no
// command can reach other tasks. The gap of kinds is that of callers.
//
// # Webhooks
//
// The configuration names the URL of each kind. A task changes only the places of its key, which is percent-encoded there.
// The address of each connection is checked after the name has been resolved. Redirects are never followed, so there is
// no second target to check. Private addresses, and addresses called without TLS, must be in the kind's networks.
//
// The signature covers the headers that describe the run, each on a line of its own, and then the body. Headers escape
// line feeds, so a line feed is an unambiguous separator.
//
// The status decides the outcome of an attempt. At most 4 KiB of the answer's body is read, to quote it in errors and
// to reuse the connection. The pool has as many workers as all kinds together may use, so a hanging receiver occupies
// only workers of its own kind. An attempt is sent at most once.
//
// # The breaker
//
// A kind whose receiver fails several times in a row gets one attempt at a time, until the receiver answers. A run that is
// not admitted returns durable.Snooze: it is due again later, with the same attempt number. It occupies no worker, its
// timeout does not run, and a drain does not wait for it. Its task may expire, and a process that is killed meanwhile uses
// up no attempt. None of this holds for a wait inside the handler. A lower limit by TuneLimits would be stored, and belongs
// to operators.
//
// A waiting run is stored again each time it has asked. It therefore waits half as long as it is already late, up to ten
// minutes. A new task thus waits a second behind a short failure. A million tasks behind a long outage cost some 2,200
// changes a second. The price is that a task may be delivered ten minutes after the receiver is back. Each process has its
// own breakers, and its page has a note of each open one.
//
// # File descriptors
//
// A store that cannot open a file fails. The limit of the process is therefore divided at the start. The store keeps its
// reserve, each kind has a concurrency that fits, and a gate bounds the connections of each address. No part borrows from
// another.
//
// # Reload
//
// A signal applies the fields with the tag reload, all or none: callers, certificates, and the current webhook of each
// kind. A request or an attempt in progress is not disturbed. The other fields are compared with the running
// ones, and named.
package serve
