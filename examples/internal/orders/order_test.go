// SPDX-License-Identifier: MIT

package orders

import (
	"strings"
	"testing"
	"time"
)

// goodLine is a valid order that the tests modify.
const goodLine = `{"order":"A-1","sku":"TEA","quantity":2,` +
	`"at":"2026-03-02T09:30:00Z","paid_at":"2026-03-02T09:41:07Z"}`

// with returns goodLine with one part of it replaced.
func with(part, other string) string { return strings.Replace(goodLine, part, other, 1) }

func TestParseOrder_good(t *testing.T) {
	at := time.Date(2026, time.March, 2, 9, 30, 0, 0, time.UTC)
	unpaid := order{id: "A-1", sku: "TEA", quantity: 2, at: at}
	paid := unpaid
	paid.paid, paid.paidAt = true, at.Add(11*time.Minute+7*time.Second)
	atOnce := paid
	atOnce.paidAt = at
	for _, c := range []struct {
		name, line string
		want       order
	}{
		{"paid", goodLine, paid},
		{"without paid_at", `{"order":"A-1","sku":"TEA","quantity":2,"at":"2026-03-02T09:30:00Z"}`, unpaid},
		{"paid_at is null", with(`"2026-03-02T09:41:07Z"`, `null`), unpaid},
		{"paid at once", with(`09:41:07Z`, `09:30:00Z`), atOnce},
		{"another zone", with(`09:41:07Z`, `11:41:07+02:00`), paid},
		{"unknown fields", with(`{`, `{"customer":{"id":7},`), paid},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseOrder([]byte(c.line))
			if err != nil {
				t.Fatal(err)
			}
			if !same(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// badLines are malformed lines, each with a part of the expected error.
var badLines = []struct{ name, line, want string }{
	{"no JSON", `order A-1`, "not JSON: invalid character 'o'"},
	{"cut off", goodLine[:40], "not JSON: unexpected end"},
	{"two on a line", goodLine + goodLine, "not JSON: invalid character '{'"},
	{"an array", `[` + goodLine + `]`, "a JSON array is not an order"},
	{"a number", `17`, "a JSON number is not an order"},
	{"null", `null`, "order is missing"},
	{"no order id", with(`"A-1"`, `""`), "order is missing"},
	{"order id is a number", with(`"A-1"`, `1`), "order is a JSON number and not a string"},
	{"no sku", with(`"sku"`, `"item"`), "sku is missing"},
	{"no quantity", with(`"quantity":2,`, ``), "quantity is missing"},
	{"quantity 0", with(`:2,`, `:0,`), "quantity 0 is not positive"},
	{"negative quantity", with(`:2,`, `:-2,`), "quantity -2 is not positive"},
	{"half a unit", with(`:2,`, `:1.5,`), "quantity is a JSON number 1.5 and not a whole number"},
	{"quantity in words", with(`:2,`, `:"two",`), "quantity is a JSON string"},
	{"too many", with(`:2,`, `:9223372036854775808,`), "and not a whole number"},
	{"no at", with(`"at"`, `"when"`), "at is missing"},
	{"at is no time", with(`2026-03-02T09:30:00Z`, `half past nine`), `at "half past nine" is not`},
	{"no zone", with(`09:30:00Z`, `09:30:00`), `at "2026-03-02T09:30:00" is not a time`},
	{"no such day", with(`03-02T09:41`, `02-30T09:41`), `paid_at "2026-02-30T09:41:07Z" is not`},
	{"paid_at is empty", with(`2026-03-02T09:41:07Z`, ``), `paid_at "" is not a time`},
	{"paid before", with(`09:41:07Z`, `09:29:59Z`), "is before at 2026-03-02T09:30:00Z"},
}

func TestParseOrder_bad(t *testing.T) {
	for _, c := range badLines {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseOrder([]byte(c.line))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want an error with %q", c.line, err, c.want)
			}
		})
	}
}

func FuzzParseOrder(f *testing.F) {
	f.Add(goodLine)
	for _, c := range badLines {
		f.Add(c.line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		o, err := parseOrder([]byte(line))
		if err != nil {
			return
		}
		if o.id == "" || o.sku == "" || o.quantity <= 0 || o.paid && o.paidAt.Before(o.at) {
			t.Fatalf("%q is taken for the order %+v", line, o)
		}
		again, err := o.appendLine(nil)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got, err := parseOrder(again); err != nil || !same(got, o) {
			t.Fatalf("%q is %+v, but written and read again %+v, %v", line, o, got, err)
		}
	})
}

// same reports whether a and b are the same order, with times in any zone.
func same(a, b order) bool {
	times := a.at.Equal(b.at) && a.paidAt.Equal(b.paidAt)
	a.at, a.paidAt = b.at, b.paidAt
	return times && a == b
}
