// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestAThingIsFoundByIDByNameOrByTheOneIDThatBeginsSo(t *testing.T) {
	type thing struct{ id, name string }
	key := func(t *thing) (id, name string) { return t.id, t.name }
	things := []thing{{"aaaa1111", "db"}, {"aaaa2222", ""}, {"bbbb3333", "aaaa1111"}, {"cccc4444", "cccc"}}
	for ref, want := range map[string]string{
		"aaaa1111": "aaaa1111", "db": "aaaa1111", "bbbb": "bbbb3333", "aaaa2": "aaaa2222",
		"cccc": "cccc4444", // the name and the beginning of the id of one thing
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

func TestANameAndTheBeginningOfAnotherIDAreBothFound(t *testing.T) {
	type thing struct{ id, name string }
	key := func(t *thing) (id, name string) { return t.id, t.name }
	things := []thing{{"bbbb3333", "aaaa1"}, {"aaaa1111", "db"}}
	if found := api.Lookup(things, "aaaa1", key); len(found) != 2 {
		t.Errorf("found %+v, want both", found)
	}
}

func TestTextsThatIDsMayBeginWith(t *testing.T) {
	for text, want := range map[string]bool{
		"3f2a9c01": true, "3f2a": true, "2024": true, "3f2a9c01-": true, "3f2a9c01-77d0": true,
		"3f2a9c01-77d0-4b1c-9a3e-0123456789ab": true,
		"3f2":                                  false, // too short to be taken for an id
		"3F2A9C01":                             false, "3f2a-9c01": false, "3f2a9c011": false, "3f2a9c01-vda": false, "web1": false, "": false,
		"3f2a9c01-77d0-4b1c-9a3e-0123456789ab0": false,
	} {
		if api.MayBeginID(text) != want {
			t.Errorf("%q: %v, want %v", text, !want, want)
		}
	}
}
