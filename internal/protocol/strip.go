// SPDX-License-Identifier: Apache-2.0

package protocol

import "reflect"

// IsFirst reports whether a program is older than announcements. Such a program refuses unknown
// fields, which later ones ignore.
func (a Announcement) IsFirst() bool {
	return a.Protocol == first && a.Version == "" && len(a.Features) == 0
}

// WithoutIgnorable returns body without the fields that a program may ignore, for a program that
// refuses unknown fields. Values that body points to are copied, not changed.
func WithoutIgnorable[T any](body T) T {
	strip(reflect.ValueOf(&body).Elem())
	return body
}

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
