// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"reflect"
	"strings"
	"unicode"

	"github.com/volferry/volferry/internal/api"
)

// nouns has the exceptions of nounOf: types with another name for the answer's member. A
// ShelvedInstance is the whole answer; its route declares the members.
var nouns = map[reflect.Type]string{
	reflect.TypeFor[None]():                "",
	reflect.TypeFor[api.ShelvedInstance](): "",
	reflect.TypeFor[string]():              "version",
	reflect.TypeFor[map[string]string]():   "version",
	reflect.TypeFor[api.VolumeType]():      "type",
	reflect.TypeFor[api.VolumeRegister]():  "volume",
	reflect.TypeFor[api.PauseEstimate]():   "estimate",
	reflect.TypeFor[api.MigrationPlan]():   "plan",
}

// nounOf returns the member of a document that holds an answer of this type: the type's name in
// snake case, plural for a list.
func nounOf(t reflect.Type) string {
	if t.Kind() == reflect.Slice {
		return plural(nounOf(t.Elem()))
	}
	if noun, ok := nouns[t]; ok {
		return noun
	}
	var noun strings.Builder
	for i, r := range t.Name() {
		if unicode.IsUpper(r) && i > 0 {
			noun.WriteByte('_')
		}
		noun.WriteRune(unicode.ToLower(r))
	}
	return noun.String()
}

func plural(noun string) string {
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return stem + "ies"
	}
	if strings.HasSuffix(noun, "x") {
		return noun + "es"
	}
	return noun + "s"
}
