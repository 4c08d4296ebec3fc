// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// TestRetypeOfARunningGuestsVolumeGoesWhereThatIsAskedFor with the options of a move, within what
// the new type allows.
func TestRetypeOfARunningGuestsVolumeGoesWhereThatIsAskedFor(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	name := g.volumeName("vda")
	h.ctl(t, "type", "create", "only-b", "--pool", "b")
	h.ctl(t, "type", "create", "both", "--pool", "a", "--pool", "b")
	retype := func(typeName string, args ...string) []string {
		return append([]string{"volume", "retype", name, "--type", typeName, "--migration-policy", "on-demand"}, args...)
	}
	moved := func(args []string) api.Migration {
		t.Helper()
		m := get[api.Migration](t, h, "migration", args...)
		if m.State != api.MigrationCompleted || m.Error != nil {
			t.Fatalf("migration ended as %s: %+v", m.State, m)
		}
		g.noteMove(t, m)
		return m
	}
	assertIs := func(typeName, path string) {
		t.Helper()
		if v := g.volume(t, "vda"); v.Type != typeName || v.Location.Path != path {
			t.Errorf("the volume has the type %s, at %s; want %s, at %s", v.Type, v.Location.Path, typeName, path)
		}
	}
	src := g.volume(t, "vda").Location.Path

	mustContain(t, h.refuses(t, api.CodePolicyDenied, retype("only-b", "--to-pool", "a")...).Message, "only-b", "pool a")
	h.refuses(t, api.CodePolicyDenied, retype("only-b", "--to-path", filepath.Join(a, "other.raw"))...)
	h.refuses(t, api.CodePolicyDenied, "volume", "retype", name, "--type", "only-b")

	m := moved(retype("only-b", "--to-pool", "b", "--method", "mirror", "--bandwidth", "64MiB/s", "--verify", "full", "--delete-source"))
	if m.Method != api.MethodMirror || m.BandwidthBytesPerSecond != 64<<20 || exists(t, src) {
		t.Errorf("method %s, bandwidth %d, source there: %t; want mirror, 64 MiB/s and no source", m.Method, m.BandwidthBytesPerSecond, exists(t, src))
	}
	assertIs("only-b", m.Dst.Path)
	g.assertSettledAndGoOn(t)

	// Its type would let it stay.
	path := filepath.Join(a, "named.raw")
	if m = moved(retype("both", "--to-path", path, "--method", "overlay")); m.Method != api.MethodOverlay || !exists(t, m.Src.Path) {
		t.Errorf("method %s, source there: %t; want overlay, and its source", m.Method, exists(t, m.Src.Path))
	}
	assertIs("both", path)
	g.assertSettledAndGoOn(t)

	// It is there.
	if v := get[api.Volume](t, h, "volume", retype("default", "--to-path", path)...); v.Type != "default" || v.MigrationID != "" {
		t.Errorf("the volume has the type %s and migration %q, want default and none", v.Type, v.MigrationID)
	}
	assertIs("default", path)
	g.assertSettled(t)
}
