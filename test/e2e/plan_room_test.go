// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/test/site"
)

// TestAPlanSaysOfADestinationWithoutRoomWhatIsFreeAndWhatIsTaken of one volume, of all of an
// instance and of all of a pool, and nothing is changed by it. What it says fits is moved.
func TestAPlanSaysOfADestinationWithoutRoomWhatIsFreeAndWhatIsTaken(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	small := h.fsPool(t, "small", "ext4", 40) // a volume takes 20 MiB of about 30 that are free, and may grow to 64
	g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw), h.diskIn(t, h.poolA, api.FormatRaw))
	name := g.volumeName("vda")
	typeOfSmall := h.typeIn(t, "small")
	migrate := []string{"volume", "migrate", name, "--to-pool", "small", "--dry-run"}
	instance := []string{"instance", "migrate", g.Name, "--to-pool", "small", "--dry-run"}
	drain := []string{"pool", "drain", "a", "--to", "small", "--dry-run"}
	eventually(t, "the daemon asks the registry for work", func() bool { // which relays a retype to the host
		_, err := h.Ctl(t.Context(), retypeArgs(name, typeOfSmall, "--dry-run")...)
		return err == nil || codeOf(err) != api.CodeHypervisorUnavailable
	})
	same := h.unchangedByPlans(t, name, h.poolA)

	t.Run("one fits, and two do not", func(t *testing.T) {
		mustContain(t, h.ctl(t, migrate...), "takes up to", " free", "pool small", "may grow to 64MiB")
		saysNoRoom(t, h.refuses(t, api.CodeNoSpace, instance...), g.Name, "pool small", "nothing was done")
		mustContain(t, h.ctl(t, drain...), g.volumeName("vda"), g.volumeName("vdb"), "pool small has ", " free", "THE VOLUMES MAY NOT ALL FIT")
	})
	filler := filepath.Join(small, "filler")
	takeAllBut(t, filler, 8<<20)
	t.Run("none fits", func(t *testing.T) {
		for _, args := range [][]string{
			migrate,
			{"volume", "migrate", name, "--to-path", filepath.Join(small, "named.raw"), "--dry-run"},
			retypeArgs(name, typeOfSmall, "--dry-run"),
		} {
			saysNoRoom(t, h.refuses(t, api.CodeNoSpace, args...), small, name)
		}
		planned := h.refuses(t, api.CodeNoSpace, migrate...)
		if e := g.refusesToMove(t, "vda", api.CodeNoSpace, "--to-pool", "small"); e.Message != planned.Message {
			t.Errorf("the plan says %q, and the move %q", planned.Message, e.Message)
		}
		mustContain(t, h.refuses(t, api.CodeNoSpace, instance...).Message, g.volumeName("vda")+" (vda)", g.volumeName("vdb")+" (vdb)", planned.Message, "nothing was done")
		mustContain(t, h.refuses(t, api.CodeConflict, drain...).Message, "pool a", "pool small", "nothing was done")
		plans := h.drainPlans(t, drain...)
		if len(plans) != len(g.disks) {
			t.Errorf("%d plans, want %d", len(plans), len(g.disks))
		}
		for _, p := range plans {
			if p.Error == nil || p.Error.Code != api.CodeNoSpace {
				t.Errorf("volume %s: %v, want it to stay for want of room", p.VolumeName, p.Error)
				continue
			}
			saysNoRoom(t, *p.Error, small, p.VolumeName)
		}
	})
	same()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if files := glob(t, filepath.Join(small, "*.raw")); len(files) > 0 {
		t.Errorf("plans have made %v", files)
	}
	plan := get[api.MigrationPlan](t, h, "plan", migrate...)
	const tables = 1 << 20 // the filesystem's own, of where the extents of the file are
	if m := g.migrate(t, "vda", "--to-pool", "small"); takenBytes(t, m.Dst.Path) > *plan.NeededBytes+tables {
		t.Errorf("%s takes %d bytes, and was to take up to %d", m.Dst.Path, takenBytes(t, m.Dst.Path), *plan.NeededBytes)
	}
	g.assertSettled(t)
}

// saysNoRoom claims that a refusal has these words, and what is free and what is taken in its text
// and beside it.
func saysNoRoom(t *testing.T, e api.Error, words ...string) {
	t.Helper()
	bytes := func(detail string) int64 {
		n, is := e.Details[detail].(float64)
		if !is {
			t.Errorf("no %s beside: %s", detail, e.Message)
		}
		return int64(n)
	}
	free, needed := bytes("free_bytes"), bytes("needed_bytes")
	if free >= needed {
		t.Errorf("%d bytes are free and %d are needed: %s", free, needed, e.Message)
	}
	mustContain(t, e.Message, append(words, humanize.ExactBytes(free)+" free", humanize.ExactBytes(needed))...)
}

// drainPlan is what the plan of a drain says of a volume.
type drainPlan struct {
	VolumeName string `json:"volume_name"`
	Error      *api.Error
}

// drainPlans is what a dry run of a drain prints, also where it moves nothing.
func (h *host) drainPlans(t *testing.T, args ...string) (plans []drainPlan) {
	t.Helper()
	out, err := h.Ctl(t.Context(), append([]string{"-o", "json"}, args...)...)
	var failed *site.CtlError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(unwrap(t, out, "plans"), &plans); err != nil {
		t.Fatalf("the plans are %s: %v", out, err)
	}
	return plans
}
