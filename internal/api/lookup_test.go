// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestAThingIsFoundByIDByNameOrByTheOneIDThatBeginsSo(t *testing.T) {
	type thing struct{ id, name string }
	key := func(t *thing) (id, name string) { return t.id, t.name }
	things := []thing{{"aaaa1111", "db"}, {"aaaa2222", ""}, {"bbbb3333", "aaaa"}}
	for ref, want := range map[string]string{
		"aaaa1111": "aaaa1111", "db": "aaaa1111", "bbbb": "bbbb3333", "aaaa2": "aaaa2222",
		"aaaa": "bbbb3333", // a name goes before the beginning of an id
		"aaa":  "", "aaaa1112": "", "": "", "bbb": "",
	} {
		found := api.Lookup(things, ref, key)
		if len(found) > 1 || (len(found) == 1) != (want != "") || len(found) == 1 && found[0].id != want {
			t.Errorf("%q: found %+v, want %q", ref, found, want)
		}
	}
	if found := api.Lookup(things[:2], "aaaa", key); len(found) != 2 {
		t.Errorf("the beginning of two ids: found %+v", found)
	}
}
