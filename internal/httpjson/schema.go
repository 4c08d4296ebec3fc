// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// schemas are the JSON schemas of Go types, by the names of the types.
type schemas map[string]any

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)

// of returns the schema of what encoding/json makes of t. Structs become
// components that are referred to.
func (s schemas) of(t reflect.Type) map[string]any {
	switch t {
	case timeType:
		return map[string]any{"type": "string", "format": "date-time"}
	case rawType:
		return map[string]any{}
	}
	switch t.Kind() { //nolint:exhaustive // what no document has is any value
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{s.of(t.Elem()), map[string]any{"type": "null"}}}
	case reflect.Struct:
		s.component(t)
		return map[string]any{"$ref": "#/components/schemas/" + t.Name()}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer", "format": "int64"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	}
	return map[string]any{}
}

// component adds the schema of a struct. A field without omitempty is required.
func (s schemas) component(t reflect.Type) {
	if s[t.Name()] != nil {
		return
	}
	properties, required := map[string]any{}, []string{}
	schema := map[string]any{"type": "object", "properties": properties}
	s[t.Name()] = schema // before its fields, which may be of its type
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" || name == "-" {
			continue
		}
		properties[name] = s.of(f.Type)
		if !strings.Contains(options, "omitempty") {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		schema["required"] = required
	}
}

// document returns the schema of an answer with these nouns.
func (s schemas) document(nouns []Noun) map[string]any {
	if len(nouns) == 0 {
		return map[string]any{"$ref": "#/components/schemas/Document"}
	}
	properties := map[string]any{}
	for _, n := range nouns {
		properties[n.Name] = s.of(reflect.TypeOf(n.Value))
	}
	return map[string]any{
		"allOf":      []any{map[string]any{"$ref": "#/components/schemas/Document"}},
		"properties": properties,
	}
}
