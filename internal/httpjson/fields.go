// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// field is a member of a document, as declared by its struct, for the OpenAPI document and the
// checks of bodies.
type field struct {
	name     string
	typ      reflect.Type
	index    []int
	required bool
	nullable bool
	// enum are the allowed values, nil for any.
	enum []string
}

// The words of the tag `schema` of a field, separated by commas.
const (
	// tagOptional: the field may be absent, though an encoder always writes it.
	tagOptional = "optional"
	// tagNullable: the field may be null, though it is no pointer.
	tagNullable = "nullable"
	// tagExtensible, of an embedded struct: its members may have values outside their enums.
	tagExtensible = "extensible"
)

var knownFields sync.Map

func fieldsOf(t reflect.Type) []field {
	if known, ok := knownFields.Load(t); ok {
		fields, _ := known.([]field)
		return fields
	}
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" || name == "-" {
			continue
		}
		said := schemaWords(f)
		var enum []string
		if values := f.Tag.Get("enum"); values != "" && !slices.Contains(schemaWords(t.Field(f.Index[0])), tagExtensible) {
			enum = strings.Split(values, ",")
		}
		fields = append(fields, field{
			name: name, typ: f.Type, index: f.Index, enum: enum,
			required: !slices.Contains(strings.Split(options, ","), "omitempty") && !slices.Contains(said, tagOptional),
			nullable: f.Type.Kind() == reflect.Pointer || f.Type == rawType || slices.Contains(said, tagNullable),
		})
	}
	knownFields.Store(t, fields)
	return fields
}

func schemaWords(f reflect.StructField) []string { return strings.Split(f.Tag.Get("schema"), ",") }

var (
	timeType        = reflect.TypeFor[time.Time]()
	rawType         = reflect.TypeFor[json.RawMessage]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// needsBody reports whether a document of the type has a required member.
func needsBody(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() != reflect.Struct || slices.ContainsFunc(fieldsOf(t), func(f field) bool { return f.required && f.typ.Kind() != reflect.Pointer })
}
