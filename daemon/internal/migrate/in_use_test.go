// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// shareSrc defines a domain that was never adopted and that has src as well.
func (d *daemon) shareSrc() {
	d.t.Helper()
	must(d.t, d.world.Define(hv.Domain{ID: testHost, Name: "stranger", Config: []hv.Disk{{
		Target: "vdb", Shareable: true, Terminated: true, Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: srcPath}},
	}}}))
}

func (d *daemon) leaveSrc() {
	d.t.Helper()
	must(d.t, d.world.Undefine(testHost))
}

func wantStranger(t *testing.T, err error) {
	t.Helper()
	if api.CodeOf(err) != api.CodeVolumeInUse || !strings.Contains(err.Error(), "disk vdb of instance stranger") {
		t.Errorf("got %v (%s), want volume_in_use by the stranger", err, api.CodeOf(err))
	}
}

func TestAVolumeThatAStrangerHasTooIsNotMoved(t *testing.T) {
	for _, state := range []hv.State{hv.StateStopped, hv.StateRunning, hv.StatePaused} {
		for _, target := range []api.MigrationTarget{toNewPool, mirrorToNewPool} {
			t.Run(string(state)+" "+target.Method, func(t *testing.T) {
				inBubble(t, state, func(t *testing.T, d *daemon) {
					d.shareSrc()
					_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true})
					wantStranger(t, err)
					d.stayed()
					d.leaveSrc()
					d.moved(d.until(d.migrateTo(target), api.MigrationCompleted))
				})
			})
		}
	}
}

// A new user of src is found before the switch.
func TestAVolumeThatAStrangerHasGotMeanwhileIsNotSwitched(t *testing.T) {
	for _, state := range []hv.State{hv.StateStopped, hv.StateRunning} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				mig := d.copied()
				d.shareSrc()
				c := Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID}
				_, _, err := d.manager().Complete(context.Background(), c)
				must(t, err)
				wantStranger(t, d.ended(c.OpID))
				d.leaveSrc()
				c.OpID = uuid.NewString()
				_, _, err = d.manager().Complete(context.Background(), c)
				must(t, err)
				d.moved(d.until(mig.ID, api.MigrationCompleted))
			})
		})
	}
}

func TestAMirrorWhoseVolumeAStrangerHasGotMeanwhileIsNotSwitched(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.mirroring(mirrorToNewPool)
		d.shareSrc()
		d.world.SetStep(testSize)
		wantStranger(t, d.until(mig.ID, api.MigrationCancelled).Error)
		d.gone(mig)
	})
}

// A domain that libvirt cannot read may have src.
func TestAVolumeIsNotMovedWhileADomainCannotBeRead(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.shareSrc()
		d.world.MakeUnreadable(testHost, errors.New("its XML ends in the middle"))
		_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool, Composite: true})
		if api.CodeOf(err) != api.CodeHypervisorUnavailable || !strings.Contains(err.Error(), "stranger") || !strings.Contains(err.Error(), "ends in the middle") {
			t.Errorf("got %v (%s), want hypervisor_unavailable for the stranger", err, api.CodeOf(err))
		}
		d.stayed()
	})
}
