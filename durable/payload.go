// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// setJSON encodes the payload into the task.
func (t *Task) setJSON(payload any) (err error) {
	if t.Payload, err = json.Marshal(payload); err != nil {
		return fmt.Errorf("%w: payload of %q: %w", ErrInvalidTask, t.Key, err)
	}
	return nil
}

// WithPayloadVersion sets the version of the payloads that the handler accepts. The default is 1. Tasks added by this
// scheduler have payloads with that version, unless [Task].PayloadVersion is set.
//
// A payload with an earlier version is passed to upgrade, and the handler receives the result. If upgrade returns an
// error, the task is parked at once, with the error as its failure, so the error must not contain secret parts of the
// payload. Of an error of encoding/json, which quotes numbers, only the place and the types are kept. upgrade must not
// modify its argument, which remains stored. With [KindOf], an empty payload is the zero value in every version,
// and is not upgraded.
//
// A task whose payload has a later version is left alone, as if its kind had no handler on this scheduler. Another node
// or a later process runs the task. Payloads can therefore change in a rolling deployment: nodes of the old version run
// the old payloads, and nodes of the new version run all payloads.
//
// version must be from 2 to 1,000. upgrade may be nil only if the kind has no handler here: see [Scheduler.Declare].
func WithPayloadVersion(version int, upgrade func(payload []byte, from int) ([]byte, error)) KindOption {
	return func(k *kind) error {
		if version < 2 || version > task.MostVersion {
			return fmt.Errorf("durable: version %d of the payload; 2 to %d are allowed", version, task.MostVersion)
		}
		k.Policy.Version, k.Policy.Upgrade = version, upgrade
		return nil
	}
}

// call calls the handler, with the payload upgraded to the handler's version if necessary.
func (k *kind) call(ctx context.Context, run Run) (err error) {
	if !k.typed || len(run.Payload) > 0 {
		if run.Payload, err = upgraded(run.Payload, run.rec.Version, k.Policy.Version, k.Policy.Upgrade); err != nil {
			return Park(err)
		}
	}
	return k.handler(ctx, run)
}

// upgraded returns the payload, upgraded from one version to another if necessary.
func upgraded(payload []byte, from, to int, upgrade func([]byte, int) ([]byte, error)) ([]byte, error) {
	from, to = max(from, 1), max(to, 1)
	switch {
	case from > to:
		return nil, fmt.Errorf("payload of version %d is newer than %d", from, to)
	case from == to:
		return payload, nil
	case upgrade == nil:
		return nil, fmt.Errorf("payload of version %d is not upgraded to %d: the upgrade is nil", from, to)
	}
	next, err := upgrade(payload, from)
	var syntax *json.SyntaxError
	var value *json.UnmarshalTypeError
	switch nothing := reflect.TypeFor[struct{}](); {
	case errors.As(err, &syntax):
		err = errors.New(misfit(syntax, nothing))
	case errors.As(err, &value):
		err = errors.New(misfit(value, nothing))
	}
	if err != nil {
		return nil, fmt.Errorf("payload of version %d is not upgraded to %d: %w", from, to, err)
	}
	return next, nil
}

// decode decodes a payload. An empty payload is the zero value. The error contains no text of the payload, and wraps no
// error that does.
func decode[T any](payload []byte) (v T, err error) {
	if len(payload) == 0 {
		return v, nil
	}
	if err = json.Unmarshal(payload, &v); err != nil {
		return v, fmt.Errorf("payload of %d bytes does not decode into %v: %s", len(payload), reflect.TypeFor[T](), misfit(err, reflect.TypeFor[T]()))
	}
	return v, nil
}

// misfit describes an error of package json about a type, without any text of the payload. Errors of other types may
// quote the payload, for example if an UnmarshalJSON method returns them, so misfit only names their type.
func misfit(err error, t reflect.Type) string {
	switch e := err.(type) { // not errors.As, because an error that wraps one of these may quote the payload as well
	case *json.SyntaxError:
		return fmt.Sprintf("it is no JSON from byte %d on", e.Offset)
	case *json.UnmarshalTypeError:
		value, _, _ := strings.Cut(e.Value, " ") // "number 42"
		field := ""
		if path := fieldPath(t, e.Field); path != "" {
			field = " of field " + path
		}
		return fmt.Sprintf("the JSON %s%s, at byte %d, does not fit into %v", value, field, e.Offset, e.Type)
	}
	return fmt.Sprintf("there was an error of type %T", err)
}

// fieldPath returns the beginning of a path that consists of the names of struct fields. The rest of the path may contain
// the keys of a map, which are text of the payload.
func fieldPath(t reflect.Type, path string) string {
	var known []string
	for name := range strings.SplitSeq(path, ".") {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			break
		}
		fields := reflect.VisibleFields(t)
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return cmp.Or(tag, f.Name) == name
		})
		if i < 0 {
			break
		}
		known, t = append(known, name), fields[i].Type
	}
	return strings.Join(known, ".")
}
