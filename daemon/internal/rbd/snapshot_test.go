// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"os"
	"testing"

	"github.com/volferry/volferry/internal/medium"
)

const ours = "volferry-6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aaa"

// Output of rbd of Ceph 16.
const listed = `[{"id":4,"name":"daily","size":67108864,"protected":"false","timestamp":"Sat Nov 28 04:43:28 2026"},` +
	`{"id":5,"name":"` + ours + `","size":67108864,"protected":"true","timestamp":"Sat Nov 28 04:43:29 2026"}]`

func TestASnapshotIsFoundByItsNameInWhatRbdLists(t *testing.T) {
	for _, c := range []struct {
		text, name string
		want       Snapshot
		bad        bool
	}{
		{listed, ours, Snapshot{ID: 5, Protected: true}, false},
		{listed, "daily", Snapshot{ID: 4}, false},
		{listed, "weekly", Snapshot{}, false},
		{"[]", ours, Snapshot{}, false},
		{"", ours, Snapshot{}, true},
	} {
		if got, err := snapshotIn([]byte(c.text), c.name); got != c.want || (err != nil) != c.bad {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}

func TestAnImageWasWrittenIfRbdDiffNamesAnything(t *testing.T) {
	for text, want := range map[string]bool{
		"[]": false,
		`[{"offset":0,"length":4096,"exists":"true"}]`:      true,
		`[{"offset":65536,"length":4096,"exists":"false"}]`: true, // discarded
	} {
		if got, err := differs([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %t, %v", text, got, err)
		}
	}
	if _, err := differs(nil); err == nil {
		t.Error("no answer is one")
	}
}

// The program outside the daemon has the rights of the site's cephx user.
func TestNoOtherSnapshotIsLookedAtMadeOrRemovedThanOneOfAMove(t *testing.T) {
	if err := checkSnapshotName(SnapshotName("6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aaa")); err != nil {
		t.Error(err)
	}
	h := &Host{Clusters: func() (Clusters, error) { t.Error("a cluster is looked for"); return nil, os.ErrNotExist }}
	for _, name := range []string{"", "daily", "volferry-", "volferry-daily", ours + "@x", ours + " --force", "volferry-6F0F7F6E-6C3C-4C39-9A7C-2F2C6A1E0AAA"} {
		if _, err := h.Snapshot(t.Context(), medium.RBDImage{}, SnapshotQuery{Name: name}, nil); err == nil {
			t.Errorf("%q is looked at", name)
		}
		if err := (Cluster{}).makeSnapshot(t.Context(), medium.RBDImage{}, Change{Snapshot: name}, nil); err == nil {
			t.Errorf("%q is made", name)
		}
		if err := (Cluster{}).removeSnapshot(t.Context(), medium.RBDImage{}, Change{RemoveSnapshot: name}, nil); err == nil {
			t.Errorf("%q is removed", name)
		}
	}
}
