// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A document is openapi.json.
type document struct {
	*testing.T
	root map[string]any
}

func openDocument(t *testing.T) *document {
	d := &document{T: t}
	check(t, json.Unmarshal(openapi, &d.root))
	return d
}

// at returns the value at a path of the document, with references followed.
func (d *document) at(v any, path ...string) any {
	for {
		object, is := v.(map[string]any)
		if !is {
			break
		}
		if ref, is := object["$ref"].(string); is {
			v = d.at(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			continue
		}
		if len(path) == 0 {
			break
		}
		v, path = object[path[0]], path[1:]
	}
	if len(path) > 0 {
		return nil
	}
	return v
}

func (d *document) object(v any, path ...string) map[string]any {
	object, _ := d.at(v, path...).(map[string]any)
	return object
}

// wrong returns why a value does not fit a schema, or "". It knows the words that the document uses.
func (d *document) wrong(schema, v any) string {
	s := d.object(schema)
	for word, of := range s {
		switch word {
		case "description", "default", "properties":
		case "oneOf":
			fits := 0
			for _, one := range of.([]any) {
				if d.wrong(one, v) == "" {
					fits++
				}
			}
			if fits != 1 {
				return fmt.Sprintf("%v fits %d of %v", v, fits, of)
			}
		case "enum":
			if !slices.Contains(of.([]any), v) {
				return fmt.Sprintf("%v is none of %v", v, of)
			}
		case "minimum", "maximum", "minLength":
			n, is := v.(float64)
			if text, isText := v.(string); isText {
				n, is = float64(len(text)), word == "minLength"
			}
			if most := of.(float64); is && (word == "maximum" && n > most || word != "maximum" && n < most) {
				return fmt.Sprintf("%v has the %s %v", v, word, most)
			}
		case "format":
			text, _ := v.(string)
			if _, err := time.Parse(time.RFC3339, text); err != nil || of != "date-time" {
				return fmt.Sprintf("%v is no %v", v, of)
			}
		case "type":
			is := map[string]bool{"string": false}
			switch v := v.(type) {
			case string:
				is["string"] = true
			case float64:
				is["number"], is["integer"] = true, v == float64(int64(v))
			case bool:
				is["boolean"] = true
			case []any:
				is["array"] = true
			case map[string]any:
				is["object"] = true
			}
			if !is[of.(string)] {
				return fmt.Sprintf("%v is no %v", v, of)
			}
		case "required":
			for _, name := range of.([]any) {
				if object, is := v.(map[string]any); is && object[name.(string)] == nil {
					return fmt.Sprintf("%v has no %v", v, name)
				}
			}
		case "items":
			items, _ := v.([]any)
			for _, item := range items {
				if why := d.wrong(of, item); why != "" {
					return why
				}
			}
		case "additionalProperties":
			object, _ := v.(map[string]any)
			for name, value := range object {
				property, is := d.object(s, "properties")[name]
				if more, any := of.(map[string]any); any && !is {
					property, is = more, true
				}
				if !is {
					return fmt.Sprintf("%q is no property", name)
				}
				if why := d.wrong(property, value); why != "" {
					return name + ": " + why
				}
			}
		default:
			return fmt.Sprintf("the word %q is unknown to this test", word)
		}
	}
	return ""
}

// holds sends a request, whose answer must be in the document.
func (d *document) holds(r *rig, path, method, url, body string, headers ...string) int {
	got := r.do(method, url, body, headers...)
	operation := d.object(d.root, "paths", path, strings.ToLower(method))
	response := d.object(operation, "responses", fmt.Sprint(got.status))
	if response == nil {
		d.Errorf("%s %s %s: the status %d is not in the document: %s", method, url, body, got.status, got.body)
		return got.status
	}
	contents := d.object(response, "content")
	content := d.object(contents, got.header.Get("Content-Type"))
	if (got.body != "") != (content != nil) {
		d.Errorf("%s %s %s: the answer is %q, and the document has %v", method, url, body, got.body, contents)
	}
	for l := range strings.Lines(got.body) {
		var v any
		if err := json.Unmarshal([]byte(l), &v); err != nil && path != "/openapi.json" {
			d.Errorf("%s %s: %v: %s", method, url, err, l)
		} else if why := d.wrong(content["schema"], v); err == nil && why != "" {
			d.Errorf("%s %s %s: %s", method, url, body, why)
		}
	}
	return got.status
}
