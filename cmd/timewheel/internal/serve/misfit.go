// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// misfits returns an error for each part of a well-formed JSON value that does not fit a type, with the path of the
// part.
func misfits(path string, text []byte, t reflect.Type) (all []error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(reflect.New(t).Interface())
	if err == nil {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var parts map[string]json.RawMessage
	var items []json.RawMessage
	switch {
	case t.Kind() == reflect.Slice && json.Unmarshal(text, &items) == nil:
		for i, item := range items {
			all = append(all, misfits(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())...)
		}
	case (t.Kind() == reflect.Map || t.Kind() == reflect.Struct) && json.Unmarshal(text, &parts) == nil:
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			field := strings.TrimPrefix(path+"."+name, ".")
			if of := partOf(t, name); of != nil {
				all = append(all, misfits(field, parts[name], of)...)
			} else {
				all = append(all, fmt.Errorf("%s: unknown field", field))
			}
		}
	}
	if len(all) > 0 {
		return all
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		err = fmt.Errorf("a JSON %s is not allowed here", wrong.Value)
	}
	if path == "" {
		return []error{err}
	}
	return []error{fmt.Errorf("%s: %w", path, err)}
}

// partOf returns the type of the named part of a map or struct, or nil if it has no such part.
func partOf(t reflect.Type, name string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for i := range t.NumField() {
		if strings.EqualFold(t.Field(i).Tag.Get("json"), name) { // as package json compares them
			return t.Field(i).Type
		}
	}
	return nil
}
