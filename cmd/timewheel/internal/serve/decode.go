// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// decode decodes a JSON document, and returns all its mistakes, up to mostMistakes. It is stricter than package json: a
// name must have the right case, and be given once. It is laxer about integers, which may have an exponent or end in .0.
func decode(text []byte, into any) (wrong mistakes) {
	switch {
	case !utf8.Valid(text):
		wrong.add("", "", "the text is not UTF-8")
		return wrong
	case len(bytes.TrimSpace(text)) == 0:
		wrong.add("", "", "the text is empty")
		return wrong
	}
	if why := malformed(text); why != "" {
		wrong.add("", "", "%s", why)
		return wrong
	}
	d := decoder{text: text, wrong: &wrong}
	d.value(reflect.ValueOf(into).Elem(), "")
	return wrong
}

// A decoder reads a well-formed document by the type of its value.
type decoder struct {
	text  []byte
	at    int // of the next byte
	wrong *mistakes
}

// value reads the next value of the document into a variable.
func (d *decoder) value(to reflect.Value, path string) {
	t := to.Type()
	start := d.next()
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		to.SetBytes(slices.Clone(d.skip()))
	case start == 'n':
		d.skip()
		to.SetZero()
	case t.Kind() == reflect.Pointer:
		to.Set(reflect.New(t.Elem()))
		if d.value(to.Elem(), path); d.wrong.has(path) {
			to.SetZero() // nothing was given that could be wrong in another way
		}
	case scalars[t] != "":
		d.scalar(to, path, scalars[t])
	case t.Kind() == reflect.Slice && start == '[':
		d.slice(to, path)
	case t.Kind() == reflect.Map && start == '{':
		to.Set(reflect.MakeMap(t))
		d.object(path, func(name, path string) {
			one := reflect.New(t.Elem()).Elem()
			if key := reflect.ValueOf(name); to.MapIndex(key).IsValid() {
				d.refuse(t, path, "is given twice")
			} else {
				d.value(one, path)
				to.SetMapIndex(key, one)
			}
		})
	case t.Kind() == reflect.Struct && start == '{':
		d.fields(to, path)
	case t.Kind() == reflect.Slice:
		d.refuse(t, path, "must be an array")
	default:
		d.refuse(t, path, "must be an object")
	}
}

// scalars are the types that are read as a whole, with their allowed values.
var scalars = map[reflect.Type]string{
	reflect.TypeFor[Duration]():  `a number of seconds or text such as "1h30m", up to 292 years`,
	reflect.TypeFor[time.Time](): `a time of RFC 3339 such as "2006-01-02T15:04:05Z"`,
	reflect.TypeFor[Network]():   `a network such as "10.1.0.0/16"`,
	reflect.TypeFor[[]byte]():    "text in base64",
	reflect.TypeFor[string]():    "text",
	reflect.TypeFor[Secret]():    "text",
	reflect.TypeFor[bool]():      "true or false",
	reflect.TypeFor[int]():       "an integer of up to 64 bits",
}

// A hint is the error of a type that knows what a wrong value may mean.
type hint string

func (h hint) Error() string { return string(h) }

func (d *decoder) scalar(to reflect.Value, path, allowed string) {
	at := d.at
	text := d.skip()
	if to.Kind() == reflect.Int {
		text = integer(text)
	}
	err := json.Unmarshal(text, to.Addr().Interface())
	if to.Kind() == reflect.String && halves(text) {
		d.at = at
		d.refuse(to.Type(), path, `must be text without half of a surrogate pair such as \ud800`)
		return
	}
	if to.Kind() == reflect.Slice && text[0] != '"' || err != nil {
		var more hint
		errors.As(err, &more)
		d.at = at
		d.refuse(to.Type(), path, "must be "+allowed+string(more))
	}
}

func (d *decoder) slice(to reflect.Value, path string) {
	to.Set(reflect.MakeSlice(to.Type(), 0, 0))
	d.at++
	for i := 0; d.more(']'); i++ {
		one := reflect.New(to.Type().Elem()).Elem()
		d.value(one, fmt.Sprintf("%s[%d]", path, i))
		to.Set(reflect.Append(to, one))
	}
}

// fields reads an object into a struct.
func (d *decoder) fields(to reflect.Value, path string) {
	of := fieldsOf(to.Type())
	var seen uint64 // a bit for each field
	d.object(path, func(name, path string) {
		i := slices.Index(of.names, name)
		switch {
		case i < 0:
			d.skip()
			d.wrong.add(path, "", "unknown field%s", didYouMean(name, of.names))
		case seen>>i&1 == 1:
			d.refuse(to.FieldByIndex(of.indexes[i]).Type(), path, "is given twice")
		default:
			seen |= 1 << i
			field, at := to.FieldByIndex(of.indexes[i]), d.at
			if d.value(field, path); of.positive[i] && d.text[at] != 'n' && field.Int() <= 0 && !d.wrong.has(path) {
				d.at = at
				d.refuse(field.Type(), path, "must be more than 0; without the field it is the default")
			}
		}
	})
}

// object reads an object, and calls do for each of its names. It must read the value.
func (d *decoder) object(path string, do func(name, path string)) {
	d.at++
	for d.more('}') {
		var name string
		text := d.skip()
		_ = json.Unmarshal(text, &name)
		d.next()
		d.at++ // the colon
		d.next()
		at := strings.TrimPrefix(path+"."+cut(name), ".")
		if halves(text) {
			d.skip()
			d.wrong.add(at, "", `is a name with half of a surrogate pair such as \ud800`)
			continue
		}
		do(name, at)
	}
}

// more reports whether another element follows in an array or object, and goes to it. Otherwise it goes behind the end.
// With too many mistakes it reports false.
func (d *decoder) more(end byte) bool {
	if d.next() == ',' {
		d.at++
	}
	if d.wrong.full() {
		return false
	}
	is := d.next() != end
	if !is {
		d.at++
	}
	return is
}

// next skips spaces, and returns the byte that follows.
func (d *decoder) next() byte {
	for d.at < len(d.text) {
		switch b := d.text[d.at]; b {
		case ' ', '\t', '\r', '\n':
			d.at++
		default:
			return b
		}
	}
	return 0
}

// skip returns the text of the next value.
func (d *decoder) skip() []byte {
	d.next()
	from := d.at
	for depth := 0; ; {
		switch d.text[d.at] {
		case '"':
			for d.at++; d.text[d.at] != '"'; d.at++ {
				if d.text[d.at] == '\\' {
					d.at++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default: // a number or a word, or a byte in an object or array
			for depth == 0 && d.at+1 < len(d.text) && strings.IndexByte(" \t\r\n,:]}", d.text[d.at+1]) < 0 {
				d.at++
			}
		}
		if d.at++; depth == 0 {
			return d.text[from:d.at]
		}
	}
}

// refuse skips the next value, which is wrong. It does not show text that may be a secret.
func (d *decoder) refuse(t reflect.Type, path, detail string) {
	given := strings.Join(strings.Fields(string(d.skip())), " ")
	if hides(t) {
		given = ""
	}
	d.wrong.add(path, given, "%s", detail)
}

// hides reports whether a value of the type has secrets. The type must not contain itself.
func hides(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return hides(t.Elem())
	case reflect.Struct:
		return slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
			return f.Tag.Get("json") != "" && hides(f.Type)
		})
	}
	return t == reflect.TypeFor[Secret]()
}

// A fieldList has the fields of a struct in JSON, and of the structs that it embeds. A field with the tag positive is a number
// that is more than 0, if it is given.
type fieldList struct {
	names    []string
	indexes  [][]int
	positive []bool
}

var fieldLists sync.Map // by type

func fieldsOf(t reflect.Type) *fieldList {
	if known, is := fieldLists.Load(t); is {
		return known.(*fieldList)
	}
	of := new(fieldList)
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("json"); name != "" {
			of.names, of.indexes = append(of.names, name), append(of.indexes, f.Index)
			of.positive = append(of.positive, f.Tag.Get("positive") != "")
		}
	}
	fieldLists.Store(t, of)
	return of
}

// integer returns a number without its exponent and its fraction, if that leaves an integer of at most 19 digits.
// Otherwise it returns the text.
func integer(text []byte) []byte {
	number, exponent, _ := strings.Cut(strings.ToLower(string(text)), "e")
	number, negative := strings.CutPrefix(number, "-")
	whole, fraction, _ := strings.Cut(number, ".")
	digits := strings.TrimRight(whole+fraction, "0")
	power := len(whole) - len(digits) // of ten, with which the digits are multiplied
	if exponent != "" {
		n, err := strconv.Atoi(exponent)
		if err != nil {
			return text
		}
		power += n
	}
	digits = strings.TrimLeft(digits, "0")
	switch {
	case digits == "":
		return []byte("0")
	case power < 0 || power > 19-len(digits):
		return text
	}
	digits += strings.Repeat("0", power)
	if negative {
		digits = "-" + digits
	}
	return []byte(digits)
}
