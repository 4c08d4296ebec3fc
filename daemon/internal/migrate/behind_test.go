// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// behind is a change of another program, with virsh, to the instance of a migration that was
// started and copied.
type behind struct {
	name  string
	state hv.State
	act   func(t *testing.T, d *daemon)
	// complete and cancel are the codes of these calls' results.
	complete, cancel api.Code
}

var behinds = []behind{
	{"virsh undefine of a running guest", hv.StateRunning, undefine, api.CodeChainChanged, api.CodeChainChanged},
	{"virsh undefine", hv.StateStopped, undefine, api.CodeNeedsOperator, api.CodeNeedsOperator},
	{"virsh migrate to another host", hv.StateRunning, func(t *testing.T, d *daemon) {
		t.Helper()
		must(t, d.world.MoveAway(testInstance))
	}, api.CodeStateForbidden, api.CodeStateForbidden},
	{"virsh migrate to another host with its definition", hv.StateRunning, func(t *testing.T, d *daemon) {
		t.Helper()
		must(t, d.world.MoveAway(testInstance))
		undefine(t, d)
	}, api.CodeNeedsOperator, api.CodeNeedsOperator},
	{"virsh edit that names src", hv.StateStopped, func(t *testing.T, d *daemon) { edit(t, d, srcPath) }, api.CodeChainChanged, api.CodeChainChanged},
	{"virsh edit that names dst", hv.StateStopped, func(t *testing.T, d *daemon) { edit(t, d, dstPath) }, api.CodeChainChanged, api.CodeChainChanged},
	{"virsh edit that names src, of a running guest", hv.StateRunning, func(t *testing.T, d *daemon) { edit(t, d, srcPath) }, api.CodeChainChanged, ""},
	{"virsh snapshot-create", hv.StateRunning, func(t *testing.T, d *daemon) { d.world.SnapshotByUser(t) }, api.CodeChainChanged, api.CodeChainChanged},
	{"virsh blockcommit that runs", hv.StateRunning, blockcommit, api.CodeChainChanged, ""},
	{"virsh blockcommit and pivot", hv.StateRunning, func(t *testing.T, d *daemon) {
		blockcommit(t, d)
		must(t, d.world.Pivot(context.Background(), testInstance, "vda"))
	}, api.CodeChainChanged, ""},
	{"virsh detach-disk, and attach-disk of src", hv.StateRunning, func(t *testing.T, d *daemon) {
		slot, err := d.world.DiskDefinition(context.Background(), testInstance, hv.Live, "vda")
		must(t, err)
		detach(hv.Live)(t, d)
		edit(t, d, srcPath)
		d.world.SetQuiet() // src lacks the guest's writes
		must(t, d.world.AttachDisk(context.Background(), testInstance, hv.Live, hv.DiskSpec{Target: "vda", Slot: slot, Image: rawImage(srcPath)}))
	}, api.CodeChainChanged, api.CodeChainChanged},
	{"virsh detach-disk of the definition", hv.StateStopped, detach(hv.Config), api.CodeChainChanged, api.CodeChainChanged},
	{"virsh detach-disk of the definition of a running guest", hv.StateRunning, detach(hv.Config), api.CodeChainChanged, api.CodeChainChanged},
	{"virsh detach-disk of the running guest", hv.StateRunning, detach(hv.Live), api.CodeChainChanged, api.CodeChainChanged},
	{"virsh detach-disk of both", hv.StateRunning, func(t *testing.T, d *daemon) {
		detach(hv.Live)(t, d)
		detach(hv.Config)(t, d)
	}, api.CodeChainChanged, api.CodeChainChanged},
}

func undefine(t *testing.T, d *daemon) {
	t.Helper()
	must(t, d.world.Undefine(testInstance))
}

func edit(t *testing.T, d *daemon, path string) {
	t.Helper()
	must(t, d.world.SetConfigChain(context.Background(), testInstance, "vda", []hv.Image{rawImage(path)}))
}

func blockcommit(t *testing.T, d *daemon) {
	t.Helper()
	must(t, d.world.CommitActive(context.Background(), testInstance, "vda", 0))
	d.world.Step(testBlocks)
}

func detach(where hv.Where) func(*testing.T, *daemon) {
	return func(t *testing.T, d *daemon) {
		t.Helper()
		must(t, d.world.DetachDisk(context.Background(), testInstance, where, "vda"))
	}
}

// Changes of the disk by other programs are found when the migration continues: it is refused, or
// left to the operator, and no image that may have writes is deleted.
func TestWhatOthersDoToTheInstanceIsFoundOutAndLosesNothing(t *testing.T) {
	for _, b := range behinds {
		for name, call := range map[string]struct {
			do   func(*Manager, context.Context, Call) (api.Migration, string, error)
			want api.Code
		}{"complete": {(*Manager).Complete, b.complete}, "cancel": {(*Manager).Cancel, b.cancel}} {
			t.Run(b.name+", "+name, func(t *testing.T) {
				inBubble(t, b.state, func(t *testing.T, d *daemon) {
					ctx := context.Background()
					mig := d.copied()
					for range 10 {
						d.world.GuestWrites()
					}
					b.act(t, d)
					before := d.images(t, mig)
					_, id, err := call.do(d.manager(), ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
					if err == nil {
						err = apiOrNil(d.ended(id))
					}
					if got := api.CodeOf(err); got != call.want {
						t.Errorf("%v, want %s", err, call.want)
					}
					if call.want == "" {
						return
					}
					if after := d.images(t, mig); !slices.Equal(before, after) {
						t.Errorf("there were the images %v, and there are %v", before, after)
					}
					if got := d.get(mig.ID); got.State.Final() {
						t.Errorf("the migration is %s", got.State)
					}
					if slices.Contains(d.world.Calls(), "Suspend") {
						t.Error("the guest was paused for nothing")
					}
				})
			})
		}
	}
}

// The change is between the look before the pause and the change of the definition, or while the
// guest is paused.
func TestADefinitionThatIsChangedInTheSwitchDoesNotLeaveTheGuestPaused(t *testing.T) {
	for _, c := range []struct {
		at   string
		do   func(*Manager, context.Context, Call) (api.Migration, string, error)
		then api.MigrationState // after the definition was corrected
	}{
		{"name_dst", (*Manager).Complete, api.MigrationCompleted},
		{"pivot", (*Manager).Complete, api.MigrationCompleted},
		{"pivot", (*Manager).Cancel, api.MigrationCancelled},
	} {
		t.Run(c.at+", then "+string(c.then), func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				ctx := context.Background()
				mig := d.copied()
				d.journal.AfterAppend(func(r op.Record) {
					if r.Step == c.at && r.Kind == op.EventStarted {
						d.journal.AfterAppend(nil)
						detach(hv.Config)(t, d)
					}
				})
				call := func() string {
					_, id, err := c.do(d.manager(), ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
					must(t, err)
					return id
				}
				if refused := d.ended(call()); refused == nil || refused.Code != api.CodeChainChanged {
					t.Errorf("%v, want chain_changed", refused)
				}
				dom, err := d.world.Fake.Domain(ctx, testInstance)
				must(t, err)
				if dom.State != hv.StateRunning {
					t.Errorf("the guest is %s", dom.State)
				}
				live := dom.LiveDisk("vda")
				if live.Top().Path == mig.Dst.Path {
					t.Error("the guest was switched to dst, which its definition does not name")
				}
				must(t, d.world.AttachDisk(ctx, testInstance, hv.Config, hv.DiskSpec{Target: "vda", Bus: "virtio", Serial: live.Serial, Image: live.Top()}))
				must(t, d.world.SetConfigChain(ctx, testInstance, "vda", live.Chain))
				call()
				d.until(mig.ID, c.then)
			})
		})
	}
}

// If libvirtd died in a pivot without that, the guest would continue, and start next on the
// overlay, which lacks its writes.
func TestADefinitionThatIsChangedBackBeforeThePivotNamesDstAgainFirst(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.journal.AfterAppend(func(r op.Record) {
			if r.Step == "pivot" && r.Kind == op.EventStarted {
				d.journal.AfterAppend(nil)
				must(t, d.world.SetConfigChain(context.Background(), testInstance, "vda", d.instance().LiveDisk("vda").Chain))
			}
		})
		d.world.Inject(hvtest.Fault{Call: "Pivot", Do: func() {
			if named := d.instance().ConfigDisk("vda").Top().Path; named != mig.Dst.Path {
				t.Errorf("at the pivot the definition names %s", named)
			}
		}})
		d.ends(mig, false)
	})
}

func (d *daemon) images(t *testing.T, mig api.Migration) (there []string) {
	t.Helper()
	for _, path := range []string{srcPath, mig.Dst.Path, "/overlays/" + mig.ID + ".qcow2"} {
		if d.world.Exists(path) {
			there = append(there, path)
		}
	}
	return there
}

func apiOrNil(refused *api.Error) error {
	if refused == nil {
		return nil
	}
	return refused
}

// A mirror is then given up, since keeping it has no use: the guest continues on src.
func TestAMirrorUnderWhichTheDefinitionIsChangedIsGivenUp(t *testing.T) {
	for name, act := range map[string]func(*testing.T, *daemon){
		"virsh undefine": undefine, "virsh detach-disk": detach(hv.Config),
		"virsh edit": func(t *testing.T, d *daemon) {
			t.Helper()
			must(t, d.world.CreateImage("/old/other.raw", hvtest.Raw, testSize))
			edit(t, d, "/old/other.raw")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.mirroring(mirrorToNewPool)
				act(t, d)
				d.world.SetStep(testBlocks)
				if got := d.until(mig.ID, api.MigrationCancelled); got.Error == nil || got.Error.Code != api.CodeChainChanged {
					t.Errorf("it was given up with %v, want chain_changed", got.Error)
				}
				dom, err := d.world.Fake.Domain(context.Background(), testInstance)
				must(t, err)
				if live := dom.LiveDisk("vda"); dom.State != hv.StateRunning || live.Top().Path != srcPath || live.Mirror != nil {
					t.Errorf("the guest is %s, on %+v", dom.State, live)
				}
				if d.world.Exists(mig.Dst.Path) {
					t.Error("dst is left")
				}
			})
		})
	}
}
