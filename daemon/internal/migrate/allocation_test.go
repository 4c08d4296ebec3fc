// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

var noneAhead = map[string]image.Allocating{"/new": {Sparse: true}}

func TestTheAllocationOfTheSourceIsKeptUnlessAnotherIsAskedFor(t *testing.T) {
	newLibvirt := hv.About{Libvirt: hv.Version{Major: 11, Minor: 3}}
	for name, c := range map[string]struct {
		target api.MigrationTarget
		full   bool
		world  func(*migratetest.World)
		want   string
		warns  string
	}{
		"thin":                             {target: toNewPool, want: api.AllocationThin},
		"thick":                            {target: toNewPool, full: true, want: api.AllocationThick},
		"thick, to a path":                 {target: api.MigrationTarget{ToPath: "/var/x.raw"}, full: true, want: api.AllocationThick},
		"thick, to qcow2":                  {target: api.MigrationTarget{ToPool: "new", ToFormat: api.FormatQcow2}, full: true, want: api.AllocationThick},
		"thick, where no room comes ahead": {target: toNewPool, full: true, world: func(w *migratetest.World) { w.Images.Allocations = noneAhead }, want: api.AllocationThin, warns: "the source has all of its room"},
		"thin, where files have no holes":  {target: toNewPool, world: func(w *migratetest.World) { w.Images.Allocations = map[string]image.Allocating{"/new": {}} }, want: api.AllocationThick, warns: "has no holes in files"},
		"thick is asked for":               {target: api.MigrationTarget{ToPool: "new", Allocation: api.AllocationThick}, want: api.AllocationThick},
		"thin is asked for":                {target: api.MigrationTarget{ToPool: "new", Allocation: api.AllocationThin}, full: true, want: api.AllocationThin},
		"a mirror of libvirt 9.0":          {target: mirrorToNewPool, world: func(w *migratetest.World) { w.SetAbout(hv.About{Libvirt: hv.Version{Major: 9}}) }, want: api.AllocationThin},
		"a mirror that fills":              {target: mirrorToNewPool, world: func(w *migratetest.World) { w.SetAbout(newLibvirt) }, want: api.AllocationThick, warns: "without discard='unmap' at disk vda"},
		"a mirror of a thick source":       {target: mirrorToNewPool, full: true, want: api.AllocationThick},
		"a source that is stored in a way": {target: toNewPool, world: func(w *migratetest.World) { w.Images.Unlike = []string{"its project (42)"} }, want: api.AllocationThin, warns: "does not keep of the source: its project (42)"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				if c.full {
					d.world.Images.Full = srcPath
				}
				if c.world != nil {
					c.world(d.world)
				}
				plan, err := d.manager().Plan(context.Background(), testVolume, c.target)
				must(t, err)
				if plan.Allocation != c.want || !strings.Contains(plan.Warning, c.warns) || (c.warns == "") != (plan.Warning == "") {
					t.Errorf("the plan says %q and warns %q, want %q and %q", plan.Allocation, plan.Warning, c.want, c.warns)
				}
				fileBytes := int64(testSize)
				if plan.Dst.Format == api.FormatQcow2 {
					fileBytes = move.Qcow2FileBytes(testSize)
				}
				if all := *plan.NeededBytes == fileBytes; all != (c.want == api.AllocationThick) {
					t.Errorf("it counts %d bytes", *plan.NeededBytes)
				}
				mig := d.until(d.migrateTo(c.target), api.MigrationCompleted)
				d.moved(mig)
				given := slices.Contains(d.world.Images.Durable, fmt.Sprintf("allocate %d of %s", fileBytes, mig.Dst.Path))
				ahead, err := d.world.Images.Allocating("/new")
				must(t, err)
				if given != (c.want == api.AllocationThick && ahead.Ahead) {
					t.Errorf("dst was given all of its room: %v", given)
				}
			})
		})
	}
}

func TestADestinationThatIsMadeSparseIsSaidToLackTheRoomOfItsSource(t *testing.T) {
	for _, thick := range []bool{false, true} {
		lacks := func(t *testing.T, says string) {
			t.Helper()
			for _, what := range []string{"the source has all of its room", "does not keep of the source: its project (42)"} {
				if strings.Contains(says, what) != thick {
					t.Errorf("a thick source %t: %q, want %q", thick, says, what)
				}
			}
		}
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			d.thick(thick)
			target := api.MigrationTarget{ToPool: "new", ExternalCopy: true}
			plan, err := d.manager().Plan(t.Context(), testVolume, target)
			must(t, err)
			lacks(t, plan.Warning)
			lacks(t, d.begin(target).Remark)
		})
		toMake(t, func(t *testing.T, d *daemon, v api.LiveVolume) {
			d.thick(thick)
			d.make(v)
			lacks(t, d.get(testMigration).Remark)
		})
	}
}

// thick makes src fully allocated and gives it a project, or neither.
func (d *daemon) thick(is bool) {
	if is {
		d.world.Images.Full, d.world.Images.Unlike = srcPath, []string{"its project (42)"}
	}
}

func TestAnAllocationThatCannotBeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		target api.MigrationTarget
		world  func(*migratetest.World)
		code   api.Code
		says   string
	}{
		"no such allocation":  {api.MigrationTarget{ToPool: "new", Allocation: "fat"}, nil, api.CodeInvalidArgument, "keep, thin or thick"},
		"an external copy":    {api.MigrationTarget{ToPool: "new", Allocation: api.AllocationThick, ExternalCopy: true}, nil, api.CodeInvalidArgument, "leave allocation out"},
		"an export":           {api.MigrationTarget{ToPath: migratetest.OtherExport.Path, Allocation: api.AllocationKeep}, nil, api.CodeInvalidArgument, "--allocation says how a new file gets its room"},
		"no room ahead":       {api.MigrationTarget{ToPool: "new", Allocation: api.AllocationThick}, func(w *migratetest.World) { w.Images.Allocations = noneAhead }, api.CodeInvalidArgument, "leave out --allocation thick"},
		"a mirror that fills": {api.MigrationTarget{ToPool: "new", Method: move.MethodMirror, Allocation: api.AllocationThin}, func(w *migratetest.World) { w.SetAbout(hv.About{Libvirt: hv.Version{Major: 11}}) }, api.CodeUnsupportedDisk, "set discard='unmap'"},
		"a mirror without the room": {mirrorToNewPool, func(w *migratetest.World) {
			w.SetAbout(hv.About{Libvirt: hv.Version{Major: 11}})
			w.Images.Free.Store(testSize - 1)
		}, api.CodeNoSpace, "takes"},
		"a thick one without the room": {toNewPool, func(w *migratetest.World) { w.Images.Full = srcPath; w.Images.Free.Store(testSize - 1) }, api.CodeNoSpace, "takes"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				if c.world != nil {
					c.world(d.world)
				}
				if _, err := d.manager().Plan(context.Background(), testVolume, c.target); api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %s and %q", err, c.code, c.says)
				}
			})
		})
	}
}
