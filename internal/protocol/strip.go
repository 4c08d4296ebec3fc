// SPDX-License-Identifier: Apache-2.0

package protocol

import "reflect"

// IsFirst reports whether a program is older than announcements. It refuses fields that it does not
// know, where later ones leave them unread.
func (a Announcement) IsFirst() bool {
	return a.Protocol == first && a.Version == "" && len(a.Features) == 0
}

// WithoutIgnorable returns body without the values that a program may leave unread, for a program
// that refuses what it does not know. What body points to is not changed.
func WithoutIgnorable[T any](body T) T {
	strip(reflect.ValueOf(&body).Elem())
	return body
}

// strip zeroes the ignorable fields of a value, and copies what the value shares with others.
func strip(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // nothing else has fields
	case reflect.Pointer:
		if v.IsNil() || v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		own := reflect.New(v.Type().Elem())
		own.Elem().Set(v.Elem())
		strip(own.Elem())
		v.Set(own)
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		for i := range own.Len() {
			strip(own.Index(i))
		}
		v.Set(own)
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			switch {
			case !field.IsExported():
			case field.Tag.Get(tagNeeds) == ignorable:
				v.Field(i).SetZero()
			default:
				strip(v.Field(i))
			}
		}
	}
}
