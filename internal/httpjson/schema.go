// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"reflect"
)

type schemas map[string]any

// of returns the JSON schema of t. It adds each struct to the document's components, and refers to
// it there.
func (s schemas) of(t reflect.Type) map[string]any {
	t = inJSON(t)
	switch t {
	case timeType:
		return map[string]any{"type": "string", "format": "date-time"}
	case rawType:
		return map[string]any{}
	}
	switch t.Kind() { //nolint:exhaustive // what no document has is any value
	case reflect.Pointer:
		return orNull(s.of(t.Elem()))
	case reflect.Struct:
		s.component(t)
		return map[string]any{"$ref": "#/components/schemas/" + t.Name()}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.String:
		return stringSchema(t)
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer", "format": "int64"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	}
	return map[string]any{}
}

// documented is implemented by types that have another type in JSON.
type documented interface{ Documented() any }

func inJSON(t reflect.Type) reflect.Type {
	if t == nil || t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return t
	}
	if d, ok := reflect.Zero(t).Interface().(documented); ok {
		return reflect.TypeOf(d.Documented())
	}
	return t
}

// valued is implemented by string types with a fixed set of values.
type valued interface{ Values() []string }

func stringSchema(t reflect.Type) map[string]any {
	if v, ok := reflect.Zero(t).Interface().(valued); ok {
		return map[string]any{"type": "string", "enum": v.Values()}
	}
	return map[string]any{"type": "string"}
}

func (s schemas) component(t reflect.Type) {
	if s[t.Name()] != nil {
		return
	}
	properties, required := map[string]any{}, []string{}
	schema := map[string]any{"type": "object", "properties": properties}
	s[t.Name()] = schema // before its fields, which may have its type
	for _, f := range fieldsOf(t) {
		properties[f.name] = s.member(f)
		if f.required {
			required = append(required, f.name)
		}
	}
	if len(required) > 0 {
		schema["required"] = required
	}
}

func (s schemas) member(f field) map[string]any {
	schema := s.of(f.typ)
	if f.enum != nil {
		schema = map[string]any{"type": "string", "enum": f.enum}
	}
	if f.nullable && f.typ.Kind() != reflect.Pointer && f.typ != rawType {
		schema = orNull(schema)
	}
	return schema
}

func orNull(schema map[string]any) map[string]any {
	return map[string]any{"anyOf": []any{schema, map[string]any{"type": "null"}}}
}

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
