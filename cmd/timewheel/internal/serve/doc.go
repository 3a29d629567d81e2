// SPDX-License-Identifier: MIT

// Package serve is the service of the command: durable timers for programs in any language. Callers add tasks over HTTP,
// and the webhook of a task's kind is called when the task is due.
//
// It uses the public API of package durable and of its stores. Nothing in these packages knows it.
//
// # Callers
//
// A token has rights for prefixes of keys and for kinds. Without tokens every caller may do everything, so the service
// then listens only on loopback or on a Unix socket. Bodies are bounded, and only read after the token is checked.
//
// The right to change a task of a kind is checked before the change, in a read of its own. A task that another caller
// replaces in between, with one of another kind, can escape the check. Prefixes have no such gap.
//
// # Webhooks
//
// The configuration names the URL of each kind, and a task cannot change it. Each connection checks its address, after
// the name is resolved. Redirects are never followed, so there is no second target to check. Private addresses,
// and addresses that are called without TLS, must be in the kind's networks.
//
// The signature covers the headers that describe the run, each on a line of its own, and then the body. A key may contain
// any character except that headers escape it, so no other separator keeps the parts apart.
//
// The status decides the outcome of an attempt. The body of the answer is read up to a small bound, for errors and for
// the reuse of the connection. The pool has a worker for each run that the kinds together allow, so a hanging receiver
// occupies only the share of its own kind.
package serve
