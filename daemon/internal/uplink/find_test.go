// SPDX-License-Identifier: Apache-2.0

package uplink

import "testing"

func TestAThingIsFoundByIDByNameOrByTheOneIDThatBeginsSo(t *testing.T) {
	type thing struct{ id, name string }
	things := []thing{{"aaaa1111", "db"}, {"aaaa2222", ""}, {"bbbb3333", "aaaa"}}
	for ref, want := range map[string]string{
		"aaaa1111": "aaaa1111", "db": "aaaa1111", "bbbb": "bbbb3333", "aaaa2": "aaaa2222",
		"aaaa": "bbbb3333", // a name goes before the beginning of an id
		"aaa":  "", "aaaa1112": "", "": "", "bbb": "",
	} {
		got, ok := find(things, ref, func(t *thing) (id, name string) { return t.id, t.name })
		if ok != (want != "") || ok && got.id != want {
			t.Errorf("%q: found %+v, %t, want %q", ref, got, ok, want)
		}
	}
	if got, ok := find(things[:2], "aaaa", func(t *thing) (id, name string) { return t.id, t.name }); ok {
		t.Errorf("the beginning of two ids: found %+v", got)
	}
}
