// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// tagNeeds is the tag of a request's field that names the feature which the receiver must have if
// the field is set: without it, the receiver would do something else than requested. "-" means
// that a receiver may ignore the field.
const tagNeeds = "needs"

const ignorable = "-"

// Needs returns the features that the receiver of body must have, by the tags of its non-zero
// fields.
func Needs(body any) []string {
	if body == nil || !hasNeeds(reflect.TypeOf(body)) {
		return nil
	}
	var needs []string
	collect(reflect.ValueOf(body), &needs)
	slices.Sort(needs)
	return slices.Compact(needs)
}

func collect(v reflect.Value, needs *[]string) {
	switch v.Kind() { //nolint:exhaustive // nothing else has fields
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			collect(v.Elem(), needs)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			collect(v.Index(i), needs)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() || v.Field(i).IsZero() {
				continue
			}
			if feature := field.Tag.Get(tagNeeds); feature != "" && feature != ignorable {
				*needs = append(*needs, feature)
			}
			collect(v.Field(i), needs)
		}
	}
}

// known caches for each type whether its values can need a feature.
var known sync.Map

func hasNeeds(t reflect.Type) bool {
	if is, ok := known.Load(t); ok {
		return is == true
	}
	is := findNeeds(t, map[reflect.Type]bool{})
	known.Store(t, is)
	return is
}

func findNeeds(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() { //nolint:exhaustive // nothing else has fields
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return findNeeds(t.Elem(), seen)
	case reflect.Struct:
		for _, field := range reflect.VisibleFields(t) {
			if feature := field.Tag.Get(tagNeeds); feature != "" && feature != ignorable || findNeeds(field.Type, seen) {
				return true
			}
		}
	}
	return false
}

// Require sets the needed features in the header of a request.
func Require(h http.Header, needs []string) {
	if len(needs) > 0 {
		h.Set(needsHeader, strings.Join(needs, ", "))
	}
}

// RequiredBy returns the features that a request's header requires.
func RequiredBy(h http.Header) []string {
	text := h.Get(needsHeader)
	if text == "" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(text, " ", ""), ",")
}

// Check returns an error if a program with this announcement lacks a needed feature. program is
// the program's name in the message.
func (a Announcement) Check(program string, needs []string) error {
	lacking := a.Lacks(needs)
	if len(lacking) == 0 {
		return nil
	}
	for i, name := range lacking {
		if !isName(name) { // the header may contain anything
			lacking[i] = "unknown"
		}
	}
	return api.Errorf(api.CodeStateForbidden, "%s is %s and lacks %s, which this request needs; nothing was done: upgrade it, or ask without", program, a, strings.Join(lacking, ", ")).
		With("lacks", lacking).With("version", a.Version)
}
