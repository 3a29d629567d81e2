// SPDX-License-Identifier: MIT

package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// An order is one incoming order.
type order struct {
	id       string
	sku      string
	quantity int
	at       time.Time
	paid     bool
	paidAt   time.Time // valid if paid is set; never before at
}

// An orderLine is an order in JSON. A field is a pointer if a missing value differs from a zero value.
type orderLine struct {
	Order    string  `json:"order"`
	SKU      string  `json:"sku"`
	Quantity *int    `json:"quantity"`
	At       string  `json:"at"`
	PaidAt   *string `json:"paid_at,omitempty"`
}

// parseOrder parses one line. Its error describes the problem in terms of the line, not of this program. Unknown fields
// are ignored, because a real feed contains more fields than a program needs.
func parseOrder(text []byte) (order, error) {
	var line orderLine
	if err := json.Unmarshal(text, &line); err != nil {
		return order{}, jsonError(err)
	}
	switch {
	case line.Order == "":
		return order{}, errors.New("order is missing")
	case line.SKU == "":
		return order{}, errors.New("sku is missing")
	case line.Quantity == nil:
		return order{}, errors.New("quantity is missing")
	case *line.Quantity <= 0:
		return order{}, fmt.Errorf("quantity %d is not positive", *line.Quantity)
	case line.At == "":
		return order{}, errors.New("at is missing")
	}
	at, err := parseTime("at", line.At)
	if err != nil {
		return order{}, err
	}
	o := order{id: line.Order, sku: line.SKU, quantity: *line.Quantity, at: at}
	if line.PaidAt == nil {
		return o, nil
	}
	o.paid = true
	if o.paidAt, err = parseTime("paid_at", *line.PaidAt); err != nil {
		return order{}, err
	}
	if o.paidAt.Before(at) {
		return order{}, fmt.Errorf("paid_at %s is before at %s", *line.PaidAt, line.At)
	}
	return o, nil
}

func parseTime(field, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s %q is not a time like 2026-03-02T09:30:00Z", field, text)
	}
	return t, nil
}

// jsonError returns the error from package json without the names of Go types.
func jsonError(err error) error {
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return fmt.Errorf("not JSON: %w", err)
	}
	switch kind.Field {
	case "":
		return fmt.Errorf("a JSON %s is not an order", kind.Value)
	case "quantity":
		return fmt.Errorf("quantity is a JSON %s and not a whole number", kind.Value)
	}
	return fmt.Errorf("%s is a JSON %s and not a string", kind.Field, kind.Value)
}

// appendLine appends the order to text as one line in the format that parseOrder accepts.
func (o order) appendLine(text []byte) ([]byte, error) {
	line := orderLine{Order: o.id, SKU: o.sku, Quantity: &o.quantity, At: o.at.Format(time.RFC3339Nano)}
	if o.paid {
		paidAt := o.paidAt.Format(time.RFC3339Nano)
		line.PaidAt = &paidAt
	}
	encoded, err := json.Marshal(line)
	if err != nil {
		return text, fmt.Errorf("encoding order %s: %w", o.id, err)
	}
	return append(append(text, encoded...), '\n'), nil
}
