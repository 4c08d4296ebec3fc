// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// checkDocument refuses faults that encoding/json ignores: a missing or null member, which would
// become false or 0; a name in another case; a repeated member, where the last would count; and
// unknown members, unless the sender is newer.
func checkDocument(body []byte, t reflect.Type, newer bool) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	c := checker{dec: dec, newer: newer}
	return c.value(t, false, "")
}

type checker struct {
	dec   *json.Decoder
	newer bool // the sender is newer
}

// value checks the next value, of type t (nil for any), at path.
func (c checker) value(t reflect.Type, nullable bool, path string) error {
	token, err := c.dec.Token()
	if err != nil {
		return bodyError(err)
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t, nullable = t.Elem(), true
	}
	t = inJSON(t)
	if token == nil && !nullable && !open(t) {
		if path == "" {
			return api.Errorf(api.CodeInvalidArgument, "the request body cannot be a JSON null")
		}
		return api.Errorf(api.CodeInvalidArgument, "the field %.80q of the request body cannot be a JSON null", path)
	}
	switch token {
	case json.Delim('{'):
		return c.object(t, path)
	case json.Delim('['):
		return c.list(t, path)
	}
	return nil
}

func open(t reflect.Type) bool {
	return t == nil || t.Kind() == reflect.Interface || t == rawType
}

func (c checker) list(t reflect.Type, path string) error {
	var elem reflect.Type
	if t != nil && t.Kind() == reflect.Slice && !open(t) {
		elem = t.Elem()
	}
	for c.dec.More() {
		if err := c.value(elem, elem == nil, path); err != nil {
			return err
		}
	}
	return c.end()
}

func (c checker) object(t reflect.Type, path string) error {
	var fields []field
	closed := t != nil && t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(unmarshalerType)
	if closed {
		fields = fieldsOf(t)
	}
	seen := map[string]bool{}
	for c.dec.More() {
		token, err := c.dec.Token()
		if err != nil {
			return bodyError(err)
		}
		name, _ := token.(string) // the first token of a member
		if seen[name] {
			return api.Errorf(api.CodeInvalidArgument, "the request body has the field %.80q twice", within(path, name))
		}
		seen[name] = true
		member := field{nullable: true}
		switch at := slices.IndexFunc(fields, func(f field) bool { return f.name == name }); {
		case at >= 0:
			member = fields[at]
		case closed && (!c.newer || misspelt(name, fields)):
			return unknownField(within(path, name), name, fields)
		case closed:
			member = field{nullable: true} // any value
		case t != nil && t.Kind() == reflect.Map:
			member = field{typ: t.Elem()}
		}
		if err := c.value(member.typ, member.nullable, within(path, name)); err != nil {
			return err
		}
	}
	for _, f := range fields {
		if f.required && f.typ.Kind() != reflect.Pointer && !seen[f.name] { // an absent pointer means null
			return api.Errorf(api.CodeInvalidArgument, "the request body lacks the field %.80q", within(path, f.name))
		}
	}
	return c.end()
}

func (c checker) end() error {
	if _, err := c.dec.Token(); err != nil && !errors.Is(err, io.EOF) {
		return bodyError(err)
	}
	return nil
}

// misspelt reports whether encoding/json would match an unknown name to a field.
func misspelt(name string, fields []field) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return strings.EqualFold(f.name, name) })
}

func unknownField(path, name string, fields []field) error {
	for _, f := range fields {
		if strings.EqualFold(f.name, name) {
			return api.Errorf(api.CodeInvalidArgument, "the request body has the unknown field %.80q, which is not part of this request; %.80q is", path, f.name)
		}
	}
	return api.Errorf(api.CodeInvalidArgument, "the request body has the unknown field %.80q, which is not part of this request", path)
}

func within(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
