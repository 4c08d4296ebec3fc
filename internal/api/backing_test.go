// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestBaseImagesAreAnArrayInJSONAndCompareAsLocations(t *testing.T) {
	images := []BaseImage{{Path: "/a", Format: FormatQcow2}, {Path: "/dev/b", Format: FormatRaw, Block: true}}
	clone := Location{Path: "/top", Format: FormatQcow2, SizeBytes: 512, Backing: NewBacking(images)}
	text, err := json.Marshal(clone)
	const want = `{"path":"/top","format":"qcow2","size_bytes":512,"backing":[{"path":"/a","format":"qcow2"},{"path":"/dev/b","format":"raw","block":true}]}`
	if err != nil || string(text) != want {
		t.Errorf("%s (%v), want\n%s", text, err, want)
	}
	var again Location
	if err := json.Unmarshal([]byte(`{"size_bytes":512, "path":"/top", "format":"qcow2", "backing":[ {"format":"qcow2", "path":"/a"}, {"block":true,"path":"/dev/b","format":"raw"} ]}`), &again); err != nil || again != clone {
		t.Errorf("%+v (%v), want %+v", again, err, clone)
	}
	if got := again.Backing.Images(); !slices.Equal(got, images) {
		t.Errorf("images %+v", got)
	}
	for _, alone := range []string{`{"path":"/top"}`, `{"path":"/top","backing":[]}`, `{"path":"/top","backing":null}`} {
		var l Location
		if err := json.Unmarshal([]byte(alone), &l); err != nil || l != (Location{Path: "/top"}) {
			t.Errorf("%s is %+v (%v)", alone, l, err)
		}
	}
	if text, err = json.Marshal(Location{}); err != nil || string(text) != `{"path":"","format":"","size_bytes":0}` {
		t.Errorf("%s (%v)", text, err)
	}
}
