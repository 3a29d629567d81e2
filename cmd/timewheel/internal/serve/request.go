// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A taskRequest is a task to be added.
type taskRequest struct {
	Kind          string          `json:"kind"`
	Payload       json.RawMessage `json:"payload"`        // any JSON, sent as it was written
	PayloadBase64 []byte          `json:"payload_base64"` // in place of payload
	Delay         Duration        `json:"delay"`
	At            *time.Time      `json:"at"` // in place of delay
	Interval      Duration        `json:"interval"`
	Cron          string          `json:"cron"`  // in place of interval
	Times         int             `json:"times"` // -1: until it is removed
	MaxDelay      Duration        `json:"max_delay"`
	Jitter        Duration        `json:"jitter"`
	Until         *time.Time      `json:"until"`
	Expires       Duration        `json:"expires"`
	Group         string          `json:"group"`

	Headers        map[string]string `json:"headers"`         // of the webhook
	IdempotencyKey *string           `json:"idempotency_key"` // not empty
	onceField      string            // the header, if IdempotencyKey is from there
}

// The times at which a task can be due.
var firstTime, lastTime = time.Unix(0, 0).UTC(), time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)

// check adds the mistakes of the task and its key. Package durable refuses the same tasks, but names the fields of its own
// type, and one at a time. The earlier mistakes are about the form: if there are any, fields are not compared.
func (t *taskRequest) check(wrong *mistakes, key string, kinds []string) {
	formed := len(*wrong) == 0
	checkSize(wrong, "key", len(key), durable.MaxKey)
	switch {
	case wrong.has("kind"):
	case t.Kind == "":
		wrong.add("kind", "", "is missing: it %s", oneOf("", kinds))
	case !slices.Contains(kinds, t.Kind):
		wrong.add("kind", fmt.Sprintf("%q", t.Kind), "%s", oneOf(t.Kind, kinds))
	}
	checkSize(wrong, "payload", len(t.Payload), durable.MaxPayload)
	checkSize(wrong, "payload_base64", len(t.PayloadBase64), durable.MaxPayload)
	checkSize(wrong, "group", len(t.Group), durable.MaxGroup)
	for _, one := range []struct {
		field string
		d     Duration
	}{{"delay", t.Delay}, {"interval", t.Interval}, {"max_delay", t.MaxDelay}, {"jitter", t.Jitter}, {"expires", t.Expires}} {
		checkDuration(wrong, one.field, one.d)
	}
	checkInstant(wrong, "at", t.At)
	checkDelay(wrong, t.Delay)
	checkInstant(wrong, "until", t.Until)
	if t.Times < durable.Forever {
		wrong.add("times", fmt.Sprint(t.Times), "must be -1 or more; -1 is until the task is removed")
	}
	if t.Cron != "" {
		checkCron(wrong, t.Cron)
	}
	if !formed {
		return
	}
	if t.Payload != nil && t.PayloadBase64 != nil {
		wrong.add("payload_base64", "", "is given together with payload; only one of the two is allowed")
	}
	if t.Delay > 0 && t.At != nil {
		wrong.add("at", "", "is given together with delay; only one of the two is allowed")
	}
	if t.Interval > 0 && t.Cron != "" {
		wrong.add("cron", "", "is given together with interval; only one of the two is allowed")
	}
	repeats := t.Interval != 0 || t.Cron != ""
	if !repeats && (t.Times == durable.Forever || t.Times > 1) {
		wrong.add("times", fmt.Sprint(t.Times), "needs interval or cron")
	}
	if !repeats && t.Until != nil {
		wrong.add("until", "", "needs interval or cron")
	}
	if repeats && t.Expires > 0 {
		wrong.add("expires", "", "is given together with interval or cron; a repeating task cannot expire")
	}
	if t.MaxDelay > 0 && (t.Delay == 0 || t.Delay > t.MaxDelay) {
		wrong.add("max_delay", time.Duration(t.MaxDelay).String(), "needs a delay that is not longer")
	}
}

func checkSize(wrong *mistakes, field string, n, most int) {
	if n > most {
		wrong.add(field, "", "has %d bytes; at most %d are allowed", n, most)
	}
}

func checkInstant(wrong *mistakes, field string, at *time.Time) {
	if at != nil && (at.Before(firstTime) || at.After(lastTime)) {
		wrong.add(field, at.Format(time.RFC3339), "must be between %s and %s", firstTime.Format(time.RFC3339), lastTime.Format(time.RFC3339))
	}
}

func checkDuration(wrong *mistakes, field string, d Duration) {
	if d < 0 {
		wrong.add(field, time.Duration(d).String(), "must not be negative")
	}
}

func checkDelay(wrong *mistakes, d Duration) {
	if until := time.Until(lastTime); time.Duration(d) > until {
		wrong.add("delay", time.Duration(d).String(), "is too long: a task is due before %s", lastTime.Format(time.RFC3339))
	}
}

// inJSON replaces the fields in advice of package durable.
var inJSON = strings.NewReplacer("set Interval", "set interval", "place of Cron", "place of cron", "without Cron", "without cron")

func checkCron(wrong *mistakes, cron string) {
	if len(cron) > durable.MaxCron {
		checkSize(wrong, "cron", len(cron), durable.MaxCron)
		return
	}
	given := fmt.Sprintf("%q", cron)
	words := strings.Fields(cron + " ?")
	if zone, is := strings.CutPrefix(words[0], "CRON_TZ="); is { // the error of package time may name a file
		if _, err := time.LoadLocation(zone); err != nil {
			wrong.add("cron", given, "has an unknown time zone: %q", zone)
			return
		}
	}
	if _, err := durable.Next(cron, time.Time{}, 0); err != nil {
		_, why, _ := strings.Cut(err.Error(), given+": ")
		wrong.add("cron", given, "is not a calendar: %s", inJSON.Replace(why))
	}
}

// task returns a task that has been checked. A task with an interval but no times runs until it is removed, like a task
// with a calendar.
func (t *taskRequest) task(key, trace string, of *Kind) durable.Task {
	task := durable.Task{
		Key: key, Kind: t.Kind, Payload: t.Payload, Delay: time.Duration(t.Delay),
		Interval: time.Duration(t.Interval), Cron: t.Cron, Times: t.Times, MaxDelay: time.Duration(t.MaxDelay),
		Jitter: time.Duration(t.Jitter), Expires: time.Duration(t.Expires), Group: t.Group, Trace: trace, Once: t.once(key, of), Meta: t.meta(),
	}
	if t.PayloadBase64 != nil {
		task.Payload = t.PayloadBase64
	}
	if t.At != nil {
		task.At = *t.At
	}
	if t.Until != nil {
		task.Until = *t.Until
	}
	if task.Times == 0 && task.Interval > 0 {
		task.Times = durable.Forever
	}
	return task
}

// A rescheduleRequest has either a delay or a time.
type rescheduleRequest struct {
	Delay *Duration  `json:"delay"`
	At    *time.Time `json:"at"`
}

func (t *rescheduleRequest) check(wrong *mistakes) {
	checkInstant(wrong, "at", t.At)
	switch {
	case t.Delay != nil:
		checkDuration(wrong, "delay", *t.Delay)
		checkDelay(wrong, *t.Delay)
		if t.At != nil {
			wrong.add("at", "", "is given together with delay; only one of the two is allowed")
		}
	case t.At == nil && len(*wrong) == 0:
		wrong.add("delay", "", "is missing: one of delay and at is needed")
	}
}

func (t *rescheduleRequest) after(now time.Time) time.Duration {
	if t.At != nil {
		return t.At.Sub(now)
	}
	return time.Duration(*t.Delay)
}
