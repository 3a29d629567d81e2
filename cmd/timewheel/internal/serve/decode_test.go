// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A sample has a field of each form that a document may have.
type sample struct {
	Text    string          `json:"text"`
	Number  int             `json:"number"`
	Is      bool            `json:"is"`
	Wait    Duration        `json:"wait"`
	At      *time.Time      `json:"at"`
	Net     Network         `json:"net"`
	Bytes   []byte          `json:"bytes"`
	Any     json.RawMessage `json:"any"`
	List    []part          `json:"list"`
	Map     map[string]part `json:"map"`
	Secrets []Secret        `json:"secrets"`
	Below   *below          `json:"below"`
	embedded
}

type part struct {
	Number int      `json:"number"`
	Is     bool     `json:"is"`
	Wait   Duration `json:"wait"`
	Net    Network  `json:"net"`
}

type below struct {
	Below *part    `json:"below"`
	Text  string   `json:"text"`
	Only  []Secret `json:"only"`
}

type embedded struct {
	Extra string `json:"extra"`
}

func TestDecode_ofAnyForm_hasTheValue(t *testing.T) {
	at := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]sample{
		`{}`:   {},
		`null`: {},
		` { "text" : "a\u00e9\"\\" , "is":true ,"extra":"x"} `:  {Text: `aé"\`, Is: true, embedded: embedded{"x"}},
		`{"wait": "1h30m", "at": "2200-01-01T00:00:00Z"}`:       {Wait: Duration(90 * time.Minute), At: &at},
		`{"net": "10.0.0.0/8", "bytes": "AP8="}`:                {Net: Network{netip.MustParsePrefix("10.0.0.0/8")}, Bytes: []byte{0, 255}},
		`{"any": {"a": [1, "]}", {}], "A": 2} }`:                {Any: json.RawMessage(`{"a": [1, "]}", {}], "A": 2}`)},
		`{"any": null, "text": null, "at": null, "list": null}`: {Any: json.RawMessage(`null`)},
		`{"list": [{"number": 1},{"number":2}], "map": {"a": {"is": true}}, "below": {"text": "b"}}`: {
			List: []part{{Number: 1}, {Number: 2}}, Map: map[string]part{"a": {Is: true}}, Below: &below{Text: "b"}},
		`{"list": [], "bytes": "", "secrets": ["s"]}`: {List: []part{}, Bytes: []byte{}, Secrets: []Secret{"s"}},
	} {
		var got sample
		if wrong := decode([]byte(text), &got); wrong != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, wrong)
		}
	}
}

// An integer may be written in any way that is exact.
func TestDecode_ofAnInteger(t *testing.T) {
	for text, want := range map[string]int{
		`0`: 0, `-0`: 0, `0e5`: 0, `0.0`: 0, `0e99999999999999999999`: -1, `1e2`: 100, `1E+2`: 100, `-1.5e1`: -15, `100.0`: 100, `0.001e3`: 1,
		`1200e-2`: 12, `9223372036854775807`: 9223372036854775807, `9.223372036854775807e18`: 9223372036854775807,
		`1.5`: -1, `1e-1`: -1, `1e19`: -1, `1e999999999`: -1, `1e-999999999`: -1, `9223372036854775808`: -1, `1.00000000000000000000001`: -1,
		`1e9223372036854775807`: -1, `0.1e-9223372036854775807`: -1,
	} {
		got := sample{}
		wrong := decode([]byte(`{"number": `+text+`}`), &got)
		if refused := want == -1; refused != (wrong != nil) || !refused && got.Number != want {
			t.Errorf("%s: %d, %v", text, got.Number, wrong)
		}
	}
}

// Each mistake is found, with the path of its field, the given value, and the allowed ones.
func TestDecode_findsAllMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "the text is empty",
		" \n":                   "the text is empty",
		"{\"text\": \"\xff\"}":  "the text is not UTF-8",
		"{\"text\": 1,\n  x}":   "the JSON is malformed at byte 3 of line 2: 'x' is in the place of a name in quotes",
		`{} {}`:                 "the JSON is malformed at byte 4: '{' is in the place of the end of the text",
		`{`:                     "the JSON is malformed at byte 1: the text ends too early",
		`{"text": "a`:           "the JSON is malformed at byte 11: the text ends too early",
		`{"text": NaN}`:         "the JSON is malformed at byte 10: 'N' is in the place of a value",
		`{"text": 'a'}`:         `the JSON is malformed at byte 10: '\'' is in the place of a value`,
		`{"list": [{}, ]}`:      "the JSON is malformed at byte 15: ']' is in the place of a value",
		`{"text": "a",}`:        "the JSON is malformed at byte 14: '}' is in the place of a name in quotes",
		`{text: 1}`:             "the JSON is malformed at byte 2: 't' is in the place of a name in quotes",
		`{"text" 1}`:            "the JSON is malformed at byte 9: '1' is in the place of a colon",
		`{"text": 1 "is": 1}`:   "the JSON is malformed at byte 12: '\"' is in the place of a comma or the end of the object",
		`{"list": [{} {}]}`:     "the JSON is malformed at byte 14: '{' is in the place of a comma or the end of the array",
		`{"text": "é` + "\t\"}": `the JSON is malformed at byte 13: '\t' is in the place of an escape such as \n or \u0000`,
		`{"text": "\é"}`:        `the JSON is malformed at byte 12: 'é' is in the place of one of "\/bfnrtu`,
		`{"text": "\u12x4"}`:    `the JSON is malformed at byte 15: 'x' is in the place of a hexadecimal digit`,
		`{"number": -x}`:        "the JSON is malformed at byte 13: 'x' is in the place of a digit",
		`{"number": 1.x}`:       "the JSON is malformed at byte 14: 'x' is in the place of a digit",
		`{"number": 1e}`:        "the JSON is malformed at byte 14: '}' is in the place of a digit",
		`{"number": 01}`:        "the JSON is malformed at byte 13: '1' is in the place of a comma or the end of the object",
		`{"is": True}`:          "the JSON is malformed at byte 8: 'T' is in the place of a value",
		`{"is": truE}`:          "the JSON is malformed at byte 11: 'E' is in the place of true, false or null",
		`{"is": nul}`:           "the JSON is malformed at byte 11: '}' is in the place of true, false or null",
		"\ufeff{}":              `the JSON is malformed at byte 1: '\ufeff' is in the place of a value`,
		`{"any": ` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`: "the JSON is too deep at byte 10008: at most 10,000 arrays and objects may be inside each other",
		`[]`: "must be an object",
		`5`:  "must be an object",
		`{"text": 1, "number": "1", "is": 0, "wait": "soon", "at": "now", "net": "x", "bytes": "?", "list": {}, "map": []}`: `text: 1 must be text
number: "1" must be an integer of up to 64 bits
is: 0 must be true or false
wait: "soon" must be a number of seconds or text such as "1h30m", up to 292 years
at: "now" must be a time of RFC 3339 such as "2006-01-02T15:04:05Z"
net: "x" must be a network such as "10.1.0.0/16"
bytes: "?" must be text in base64
list: {} must be an array
map: [] must be an object`,
		`{"bytes": [1], "wait": 1e300, "number": 1.5}`: `bytes: [1] must be text in base64
wait: 1e300 must be a number of seconds or text such as "1h30m", up to 292 years
number: 1.5 must be an integer of up to 64 bits`,
		`{"list": [{}, {"number": true}], "map": {"a.b": {"x": 1}, "a": {}, "a": {}}, "below": {"below": {"is": ""}}}`: `list[1].number: true must be an integer of up to 64 bits
map.a.b.x: unknown field
map.a: {} is given twice
below.below.is: "" must be true or false`,
		`{"txet": 1, "TEXT": 2, "Extra": "", "unlike": 3, "text": "a", "text": "a"}`: `txet: unknown field (did you mean text?)
TEXT: unknown field (did you mean text?)
Extra: unknown field (did you mean extra?)
unlike: unknown field
text: "a" is given twice`,
		`{"te\u0078t": "a", "text": "a"}`: `text: "a" is given twice`,
		`{"is": [ 1,
		2]}`: `is: [ 1, 2] must be true or false`,
		`{"secrets": "do not show", "secrets": ["do not show"], "below": "do not show", "list": "x"}`: `secrets: must be an array
secrets: is given twice
below: must be an object
list: "x" must be an array`,
		`{"secrets": ["good", 12345]}`: `secrets[1]: must be text`,
		// Half of a surrogate pair has no UTF-8. In JSON that is kept as it is written it is allowed.
		`{"text": "a\ud800", "extra": "\udc00\ud800"}`: `text: "a\ud800" must be text without half of a surrogate pair such as \ud800
extra: "\udc00\ud800" must be text without half of a surrogate pair such as \ud800`,
		`{"secrets": ["\ud83d", "\ud83d\u0041"]}`: `secrets[0]: must be text without half of a surrogate pair such as \ud800
secrets[1]: must be text without half of a surrogate pair such as \ud800`,
		`{"map": {"\udc00": {"number": 1}, "\udc01": 1}}`: "map.\ufffd: is a name with half of a surrogate pair such as \\ud800\n" +
			"map.\ufffd: is a name with half of a surrogate pair such as \\ud800",
		`{"text": "\\ud800 \ud83d\ude00 \uD83D\uDE00 \ufffd", "any": "\ud800"}`: "",
	} {
		var got []string
		for _, m := range decode([]byte(text), new(sample)) {
			got = append(got, m.String())
		}
		equal(t, text, strings.Join(got, "\n"), want)
	}
}

// What a caller sends is repeated only up to a bound, and the number of mistakes in an answer is bounded.
func TestDecode_ofManyOrLongMistakes_isBounded(t *testing.T) {
	long := strings.Repeat("é", 1<<19)
	for _, text := range []string{
		`{"` + long + `": 1}`, `{"number": "` + long + `"}`, `{"map": {"` + long + `": {"x": 1}}}`,
		`[` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `]`, `{"any": ` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `}`,
		`{"number": {` + strings.Repeat(`"a": [`, 4_000) + strings.Repeat(`]`, 4_000) + `}}`,
	} {
		wrong := decode([]byte(text), new(sample))
		if n := len(fmt.Sprint(wrong)); len(wrong) != 1 || n > 500 {
			t.Errorf("%.50s: %d mistakes of %d bytes: %.500s", text, len(wrong), n, fmt.Sprint(wrong))
		}
	}
	wrong := decode([]byte(`{"list": [`+strings.Repeat(`{"x": 1}, `, 10_000)+`{}], "is": 1}`), new(sample))
	equal(t, "the number of mistakes", len(wrong), mostMistakes)
	equal(t, "the detail", fmt.Sprint(wrong.problem()),
		"list[0].x: unknown field; list[1].x: unknown field; list[2].x: unknown field; and 47 more")
}

var numbers = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*`)

// plain writes the integers of a document without exponents and fractions, as package json wants them.
func plain(text []byte) []byte {
	return numbers.ReplaceAllFunc(text, func(token []byte) []byte {
		if token[0] == '"' || len(token) > 40 || regexp.MustCompile(`[eE][+-]?0*[0-9]{3}`).Match(token) {
			return token
		}
		if n, is := new(big.Rat).SetString(string(token)); is && n.IsInt() {
			return []byte(n.Num().String())
		}
		return token
	})
}

// What the decoder accepts, package json accepts, with the same value. It never panics, and its answers are bounded.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		`{"kind": "k", "delay": "1h30m", "payload": {"a": [1, 2.50, "x"]}, "times": 1e2, "at": "2200-01-01T00:00:00Z"}`,
		`{"op": "add", "key": "k", "interval": 1.5e0, "payload_base64": "AP8=", "cron": null}`,
		`{"text": "a\u00e9\ud800", "number": 3.0, "list": [{"wait": 5e-1}, null], "map": {"a": {"net": "10.0.0.0/8"}}, "below": {}}`,
		`{"tokens": [{"name": "a", "token": "b"}], "kinds": {"k": {"url": "https://a/", "headers": {"X": "y"}, "rate": {"runs": 1E1}}}}`,
		`{"number": 00}`, `{"a": "\`, `[`, `{"any": [{"]": "}"}, "\\"]}`, `{"text": "a", "text": "b"}`, `{"TEXT": 1}`, ` null `, `{"":1}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, make := range []func() any{
			func() any { return new(sample) }, func() any { return new(line) }, func() any { return new(rescheduleRequest) },
			func() any { return new(Config) },
		} {
			got, same, want := make(), make(), make()
			if wrong := decode(text, got); wrong != nil {
				if n := len(fmt.Sprint(wrong)); len(wrong) > mostMistakes || n > 100_000 {
					t.Fatalf("%d mistakes of %d bytes", len(wrong), n)
				}
				continue
			}
			text := plain(text)
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields()
			if err := d.Decode(want); err != nil {
				t.Fatalf("%T: package json refuses %s: %v", got, text, err)
			}
			if wrong := decode(text, same); wrong != nil || !reflect.DeepEqual(same, want) {
				t.Fatalf("%T: %s is %+v, %v, and package json has %+v", got, text, same, wrong, want)
			}
			if reflect.TypeOf(got) != reflect.TypeFor[*sample]() && reflect.TypeOf(got) != reflect.TypeFor[*line]() &&
				!reflect.DeepEqual(got, want) { // the others may have numbers that are kept as they are written
				t.Fatalf("%T: %s is %+v, and package json has %+v", got, text, got, want)
			}
		}
	})
}
