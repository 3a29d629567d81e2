// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// expected are the allowed texts at a place where a document is malformed, by a part of package json's error.
var expected = [][2]string{
	{"beginning of object key", "a name in quotes"},
	{"beginning of value", "a value"},
	{"after object key:value", "a comma or the end of the object"},
	{"after object key", "a colon"},
	{"after array element", "a comma or the end of the array"},
	{"after top-level value", "the end of the text"},
	{"in string escape", `one of "\/bfnrtu`},
	{"hexadecimal", "a hexadecimal digit"},
	{"in string", `an escape such as \n or \u0000`},
	{"numeric literal", "a digit"},
	{"in literal", "true, false or null"},
}

// halves reports whether a text in JSON has half of a surrogate pair, which has no UTF-8. Package json would replace each half by
// the same character.
func halves(text []byte) bool {
	for {
		at := bytes.IndexByte(text, '\\')
		if at < 0 {
			return false
		}
		text = text[at:]
		if r := escaped(text); !utf16.IsSurrogate(r) {
			text = text[2:]
		} else if utf16.DecodeRune(r, escaped(text[6:])) == utf8.RuneError {
			return true
		} else {
			text = text[12:]
		}
	}
}

// escaped returns the character of an escape with a u at the beginning of a text, or 0.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n)
}

// malformed returns why a text is not JSON, without words of package json, or "".
func malformed(text []byte) string {
	var whole json.RawMessage
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(text, &whole), &syntax) {
		return ""
	}
	before := text[:max(int(syntax.Offset)-1, 0)]
	at := fmt.Sprintf("byte %d", len(before)-bytes.LastIndexByte(before, '\n'))
	if n := bytes.Count(before, []byte("\n")); n > 0 {
		at += fmt.Sprintf(" of line %d", n+1)
	}
	why := syntax.Error()
	if strings.Contains(why, "depth") {
		return fmt.Sprintf("the JSON is too deep at %s: at most 10,000 arrays and objects may be inside each other", at)
	}
	if strings.Contains(why, "end of JSON") {
		return fmt.Sprintf("the JSON is malformed at %s: the text ends too early", at)
	}
	found, _ := utf8.DecodeRune(text[len(before):])
	at += ": " + strconv.QuoteRune(found)
	for _, one := range expected {
		if strings.Contains(why, one[0]) {
			return fmt.Sprintf("the JSON is malformed at %s is in the place of %s", at, one[1])
		}
	}
	return fmt.Sprintf("the JSON is malformed at %s is not allowed there", at)
}
