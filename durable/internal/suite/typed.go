// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// An empty payload is the zero value of a typed kind, however the task was added, and in every version.
func emptyPayloads(t *testing.T, k *kit.Kit) {
	got := make(chan order, 10)
	kindOf(k, func(_ context.Context, _ durable.Run, o order) error { got <- o; return nil },
		durable.WithPayloadVersion(2, func([]byte, int) ([]byte, error) { return nil, errNot }))
	k.On().Add(durable.Task{Key: "added", Kind: "k", Delay: time.Second},
		durable.Task{Key: "old", Kind: "k", PayloadVersion: 1, Delay: time.Second},
		durable.Task{Key: "null", Kind: "k", Payload: []byte("null"), Delay: time.Second})
	k.Must(k.On().SetTask(ctx, durable.Task{Key: "set", Kind: "k", Payload: []byte{}, Delay: time.Second}))
	_, err := k.On().Schedule(ctx, durable.TaskSet{Prefix: "cron/", Tasks: []durable.Task{
		{Key: "cron/a", Kind: "k", Interval: time.Hour, Delay: time.Second}}})
	k.Must(err)
	k.RunsAfter(3 * time.Second)
	if len(got) != 5 {
		t.Errorf("%d of 5 tasks have run", len(got))
	}
	for range len(got) {
		if o := <-got; o != (order{}) {
			t.Errorf("the payload is %+v", o)
		}
	}
	if i := k.Info("cron/a"); i.State != durable.Scheduled || i.Failure != "" {
		t.Errorf("the declared task is %v", i)
	}
}

// secret is a part of payloads that no error may contain, nor the beginning of it.
const secret = "4111111111111111"

// A card has a method whose error quotes the text.
type card struct{}

func (c *card) UnmarshalJSON(b []byte) error { return fmt.Errorf("card %s is not valid", b) }

// A payment has a field for each kind of error.
type payment struct {
	Number int8
	Text   string
	At     time.Time
	Card   *card
	Quoted int `json:",string"`
	Exact  json.Number
	Many   map[string]struct{ Number bool }
	ByID   map[int8]int
	Inner  []struct{ Number bool }
	Level  level
}

// A level has a text form, as a name or a number may have.
type level int

func (l *level) UnmarshalText(text []byte) error { return errors.New("no level " + string(text)) }

// The errors of payloads that do not decode say where, and contain no part of them.
func secretPayloads(t *testing.T, k *kit.Kit) {
	payments := make([]durable.Kind[payment], len(k.Nodes))
	for i, n := range k.Nodes {
		var err error
		payments[i], err = durable.KindOf(n.Scheduler, "pay", func(context.Context, durable.Run, payment) error { return nil },
			durable.WithHistory(100, time.Hour))
		k.Must(err)
	}
	for name, payload := range map[string]string{
		"a number": `{"Number":` + secret + `}`, "a text": `{"Text":` + secret + `}`, "a string": `{"Number":"` + secret + `"}`,
		"a time": `{"At":"` + secret + `"}`, "a card": `{"Card":"` + secret + `"}`, "a quoted number": `{"Quoted":"x` + secret + `"}`,
		"an exact number": `{"Exact":"x` + secret + `"}`, "a map": `{"Many":{"` + secret + `":{"Number":` + secret + `}}}`,
		"the key of a map": `{"ByID":{"` + secret + `":1}}`, "a list": `{"Inner":[{"Number":` + secret + `}]}`,
		"a level": `{"Level":"` + secret + `"}`, "no JSON": secret + `4`, "text after it": `{}` + secret, "the whole": `"` + secret + `"`,
	} {
		k.On().Add(durable.Task{Key: name, Kind: "pay", Payload: []byte(payload), Delay: time.Second})
		k.After(2 * time.Second)
		i := k.Info(name)
		k.After(6 * time.Second) // until the history is written
		h, err := k.On().History(ctx, durable.HistoryQuery{Key: name})
		k.Must(err)
		if i.State != durable.Parked || len(h.Runs) != 1 {
			t.Fatalf("%s: the task is %v, and its history %v", name, i, h.Runs)
		}
		_, err = payments[0].Payload(i)
		if !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("%s: Payload returns %v", name, err)
		}
		for chain := err; chain != nil; chain = errors.Unwrap(chain) {
			var of *json.UnmarshalTypeError
			if errors.As(chain, &of) {
				t.Errorf("%s: the error wraps %v", name, of)
			}
		}
		for _, text := range []string{i.Failure, h.Runs[0].Failure, err.Error()} {
			if strings.Contains(text, secret[:4]) || !strings.Contains(text, "does not decode into suite.payment: ") {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

// Payloads of every version are read back.
func readsPayloads(t *testing.T, k *kit.Kit) {
	orders := kindOf(k, func(context.Context, durable.Run, order) error { return nil },
		durable.WithPayloadVersion(2, func(payload []byte, _ int) ([]byte, error) {
			return append(append([]byte(`{"Number":`), payload...), '}'), nil
		}))
	k.Must(orders.Add(ctx, "new", order{42}, durable.In(time.Hour)))
	k.On().Add(durable.Task{Key: "old", Kind: "k", Payload: []byte("7"), PayloadVersion: 1, Delay: time.Hour},
		durable.Task{Key: "empty", Kind: "k", PayloadVersion: 1, Delay: time.Hour},
		durable.Task{Key: "wrong", Kind: "k", Payload: []byte("x"), PayloadVersion: 1, Delay: time.Hour},
		durable.Task{Key: "newer", Kind: "k", Payload: []byte("{}"), PayloadVersion: 3, Delay: time.Hour})
	for key, want := range map[string]int{"new": 42, "old": 7, "empty": 0} {
		if o, err := orders.Payload(k.Info(key)); o != (order{want}) || err != nil {
			t.Errorf("%s: Payload returns %+v, %v", key, o, err)
		}
	}
	other := k.Info("new")
	other.Kind = "other"
	for _, i := range []durable.Info{k.Info("wrong"), k.Info("newer"), other} {
		if _, err := orders.Payload(i); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("%s: Payload returns %v", i.Key, err)
		}
	}
	var zero durable.Kind[order]
	_, task := zero.Task("a", order{})
	_, payload := zero.Payload(k.Info("new"))
	for name, err := range map[string]error{
		"Add": zero.Add(ctx, "a", order{}), "Set": zero.Set(ctx, "a", order{}), "Task": task, "Payload": payload,
	} {
		if !errors.Is(err, durable.ErrInvalidTask) || !strings.Contains(err.Error(), "KindOf") {
			t.Errorf("%s of a zero Kind returns %v", name, err)
		}
	}
}

func taskOptions(t *testing.T, k *kit.Kit) {
	orders := kindOf(k, func(context.Context, durable.Run, order) error { return nil })
	k.Must(orders.Add(ctx, "a", order{}, durable.In(time.Hour), durable.Expires(time.Minute), durable.InGroup("g"), durable.Traced("t")))
	if i := k.Info("a"); i.Expires != time.Minute || i.Group != "g" || i.Trace != "t" {
		t.Errorf("the task is %+v", i)
	}
	k.Must(orders.Add(ctx, "b", order{}, durable.Every(time.Hour), durable.Times(3)),
		orders.Add(ctx, "c", order{}, durable.Times(3), durable.Every(time.Hour)),
		orders.Add(ctx, "d", order{}, durable.ByCalendar("@daily"), durable.Times(3), durable.Jittered(time.Hour)))
	for _, key := range []string{"b", "c", "d"} {
		if i := k.Info(key); i.Times != 3 || (i.Shift > 0) != (key == "d") {
			t.Errorf("the task is %+v", i)
		}
	}
}
