// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/kinds"
)

// typeIn makes a volume type that allows these pools alone, once the host has told the registry of
// them.
func (h *host) typeIn(t *testing.T, pools ...string) (name string) {
	t.Helper()
	name = fmt.Sprintf("type-%d", h.number())
	args := []string{"type", "create", name}
	for _, pool := range pools {
		eventually(t, "the registry has pool "+pool, func() bool {
			return slices.ContainsFunc(ofRegistry[api.Pool](t, h, "pool"), func(p api.Pool) bool { return p.Name == pool })
		})
		args = append(args, "--pool", pool)
	}
	h.ctl(t, args...)
	return name
}

// retypeArgs is the command line that gives a volume another type, and moves it where that is asked
// for.
func retypeArgs(volume, typeName string, args ...string) []string {
	return append([]string{"volume", "retype", volume, "--type", typeName, "--migration-policy", "on-demand"}, args...)
}

// retypes moves a volume to its new type. The migration must be completed.
func (h *host) retypes(t *testing.T, volume, typeName string, args ...string) api.Migration {
	t.Helper()
	m := get[api.Migration](t, h, "migration", retypeArgs(volume, typeName, args...)...)
	if m.State != api.MigrationCompleted || m.Error != nil {
		t.Fatalf("migration ended as %s: %+v", m.State, m)
	}
	return m
}

// TestRetypeOfARunningGuestsVolumeGoesWhereThatIsAskedFor with the options of a move, within what
// the new type allows.
func TestRetypeOfARunningGuestsVolumeGoesWhereThatIsAskedFor(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	name := g.volumeName("vda")
	onlyB, both := h.typeIn(t, "b"), h.typeIn(t, "a", "b")
	moved := func(typeName string, args ...string) api.Migration {
		t.Helper()
		m := h.retypes(t, name, typeName, args...)
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

	mustContain(t, h.refuses(t, api.CodePolicyDenied, retypeArgs(name, onlyB, "--to-pool", "a")...).Message, onlyB, "pool a")
	h.refuses(t, api.CodePolicyDenied, retypeArgs(name, onlyB, "--to-path", filepath.Join(a, "other.raw"))...)
	h.refuses(t, api.CodePolicyDenied, "volume", "retype", name, "--type", onlyB)

	m := moved(onlyB, "--to-pool", "b", "--method", "mirror", "--bandwidth", "64MiB/s", "--verify", "full", "--delete-source")
	if m.Method != api.MethodMirror || m.BandwidthBytesPerSecond != 64<<20 || exists(t, src) {
		t.Errorf("method %s, bandwidth %d, source there: %t; want mirror, 64 MiB/s and no source", m.Method, m.BandwidthBytesPerSecond, exists(t, src))
	}
	assertIs(onlyB, m.Dst.Path)
	g.assertSettledAndGoOn(t)

	// Its type would let it stay.
	path := filepath.Join(a, "named.raw")
	if m = moved(both, "--to-path", path, "--method", "overlay"); m.Method != api.MethodOverlay || !exists(t, m.Src.Path) {
		t.Errorf("method %s, source there: %t; want overlay, and its source", m.Method, exists(t, m.Src.Path))
	}
	assertIs(both, path)
	g.assertSettledAndGoOn(t)

	// It is there.
	if v := get[api.Volume](t, h, "volume", retypeArgs(name, "default", "--to-path", path)...); v.Type != "default" || v.MigrationID != "" {
		t.Errorf("the volume has the type %s and migration %q, want default and none", v.Type, v.MigrationID)
	}
	assertIs("default", path)
	g.assertSettled(t)
}

// TestRetypeMovesAVolumeThatNoGuestUses with the options of a move, be its instance stopped or
// there be none.
func TestRetypeMovesAVolumeThatNoGuestUses(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	onlyA, onlyB := h.typeIn(t, "a"), h.typeIn(t, "b")
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	lone := h.diskIn(t, a, api.FormatRaw)
	h.ctl(t, "volume", "adopt", "data", "--path", lone.Path, "--format", "raw")
	for _, c := range []struct {
		name, volume, guest, method string
		assertIsAt                  func(*testing.T, api.Location)
	}{
		{"of a stopped instance", g.volumeName("vda"), string(api.InstanceStopped), api.MethodOverlay, func(t *testing.T, _ api.Location) { g.assertSettled(t) }},
		{"of no instance", "data", kinds.NoGuest, methodOffline, func(t *testing.T, l api.Location) { h.assertUnattached(t, lone, l) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			mustContain(t, h.refuses(t, api.CodePolicyDenied, retypeArgs(c.volume, onlyB, "--to-pool", "a")...).Message, onlyB, "pool a")
			moves := func(typeName, method string, args ...string) api.Migration {
				t.Helper()
				m := h.retypes(t, c.volume, typeName, args...)
				h.noteMove(t, m, c.guest)
				v := get[api.Volume](t, h, "volume", "volume", "show", c.volume)
				if v.Type != typeName || v.Location.Path != m.Dst.Path || m.Method != method {
					t.Errorf("by %s the volume is at %s with type %s; want by %s, at %s with type %s", m.Method, v.Location.Path, v.Type, method, m.Dst.Path, typeName)
				}
				if exists(t, m.Src.Path) == m.DeleteSource {
					t.Errorf("delete_source is %v, and whether the source is there the same: %s", m.DeleteSource, m.Src.Path)
				}
				c.assertIsAt(t, m.Dst)
				return m
			}
			m := moves(onlyB, c.method, "--to-pool", "b", "--bandwidth", "64MiB/s", "--delete-source")
			if m.BandwidthBytesPerSecond != 64<<20 || !m.DeleteSource || m.Dst.Pool != "b" {
				t.Errorf("bandwidth %d, delete_source %t, to %+v; want 64 MiB/s, true, and pool b", m.BandwidthBytesPerSecond, m.DeleteSource, m.Dst)
			}
			// No QEMU is there that could mirror, and no guest to spare.
			path := filepath.Join(a, fmt.Sprintf("named-%d.raw", h.number()))
			if m = moves(onlyA, methodOffline, "--to-path", path, "--method", "mirror"); m.Dst.Path != path {
				t.Errorf("the volume went to %s, want %s", m.Dst.Path, path)
			}
		})
	}
	h.ctl(t, "volume", "delete", "data", "--yes")
}

// TestThePlanOfARetypeShowsItsMoveAndChangesNothing, also where the move is refused.
func TestThePlanOfARetypeShowsItsMoveAndChangesNothing(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	onlyB := h.typeIn(t, "b")
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	lone := h.diskIn(t, a, api.FormatRaw)
	h.ctl(t, "volume", "adopt", "data", "--path", lone.Path, "--format", "raw")
	small := h.device(t, a, volumeBytes-512)
	for _, c := range []struct{ name, volume, method, instance string }{
		{"of a stopped instance", g.volumeName("vda"), api.MethodOverlay, g.Name},
		{"of no instance", "data", methodOffline, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			same := h.unchangedByPlans(t, c.volume, a, b)
			defer same()
			args := retypeArgs(c.volume, onlyB, "--bandwidth", "64MiB/s", "--delete-source", "--dry-run")
			plan := get[api.RetypePlan](t, h, "retype_plan", args...)
			p := plan.Move
			if p == nil || plan.FromType != "default" || plan.ToType != onlyB {
				t.Fatalf("the plan is %+v, want a move from type default to %s", plan, onlyB)
			}
			if p.Method != c.method || !p.DeleteSource || !p.CreatesDestination || p.Dst.Pool != "b" || p.Src.SizeBytes != volumeBytes {
				t.Errorf("the move is %+v, want one by %s into pool b that deletes its source", p, c.method)
			}
			if p.NeededBytes == nil || p.FreeBytes == nil || *p.NeededBytes < volumeBytes/5 || *p.NeededBytes > volumeBytes || *p.FreeBytes == 0 {
				t.Errorf("needed %v, free %v; want what the volume has, and what pool b has", p.NeededBytes, p.FreeBytes)
			}
			mustContain(t, h.ctl(t, args...), c.volume+", 64MiB", c.instance, "which is created, thin; takes up to", " free", c.method, "deleted after the move", "default -> "+onlyB)

			e := h.refuses(t, api.CodePolicyDenied, retypeArgs(c.volume, onlyB, "--to-pool", "a", "--dry-run")...)
			mustContain(t, e.Message, onlyB, "pool a")
			e = h.refuses(t, api.CodePolicyDenied, "volume", "retype", c.volume, "--type", onlyB, "--dry-run")
			mustContain(t, e.Message, "on-demand")
			e = h.refuses(t, api.CodeSizeMismatch, retypeArgs(c.volume, "default", "--to-path", small.Path, "--dry-run")...)
			mustContain(t, e.Message, small.Path, "512 bytes smaller")
		})
	}
	h.ctl(t, "volume", "delete", "data", "--yes")
	g.assertSettled(t)
}

// unchangedByPlans claims, when what it returns is called, that a volume is as it was, that no move
// of it was begun, and that the directories have the same files.
func (h *host) unchangedByPlans(t *testing.T, volume string, dirs ...string) (check func()) {
	t.Helper()
	type world struct {
		Volume api.Volume
		Moves  []api.Migration
		Files  []string
	}
	look := func() world {
		t.Helper()
		w := world{
			Volume: get[api.Volume](t, h, "volume", "volume", "show", volume),
			Moves:  get[[]api.Migration](t, h, "migrations", "migration", "list", "--all", "--volume", volume),
		}
		for _, dir := range dirs {
			w.Files = append(w.Files, glob(t, filepath.Join(dir, "*"))...)
		}
		return w
	}
	before := look()
	return func() {
		t.Helper()
		if diff := cmp.Diff(before, look()); diff != "" {
			t.Errorf("a plan has changed something (-before +after):\n%s", diff)
		}
	}
}
