// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// An interrupted fold has left part of the overlay in dst, so dst rightly differs from src.
func TestAnExternalCopyThatWasComparedIsNotRefusedAfterAFoldThatWasCutOff(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(api.MigrationTarget{ToPool: "new", ExternalCopy: true})
		must(t, d.world.Copy(srcPath, mig.Dst.Path))
		for range 20 {
			d.world.GuestWrites()
		}
		d.world.Inject(hvtest.Fault{Call: "Suspend", Do: func() { _ = d.world.Destroy(testInstance) }})
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

// Another tool may write to dst after the built-in copier has read it back.
func TestAnExternalCopyIsComparedAlsoAfterTheBuiltInCopierMadeOne(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(api.MigrationTarget{ToPool: "new", ExternalCopy: true})
		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopied)
		must(t, d.world.WriteBlock(mig.Dst.Path, 1, 77))
		d.completes(mig)
		mig = d.until(mig.ID, api.MigrationCopied, api.MigrationStarted)
		if mig.Error == nil || mig.Error.Code != api.CodeCopyMismatch {
			t.Errorf("the migration is %s with error %v, want copy_mismatch", mig.State, mig.Error)
		}
	})
}

// For a hole in src the copier writes nothing if it relies on dst being zeros.
func TestTheCopierTrustsOnlyANewFileThatNobodyWrote(t *testing.T) {
	for name, c := range map[string]struct {
		pool    string
		written bool
		want    bool
	}{
		"new file":                       {pool: "new", want: true},
		"file that somebody has written": {pool: "new", written: true},
		"new block device":               {pool: "lvm"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.world.AddPool(hv.PoolInfo{Name: "lvm", Type: "logical", Path: "/dev/vg", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
				mig := d.begin(api.MigrationTarget{ToPool: c.pool})
				if c.written {
					must(t, d.world.WriteBlock(mig.Dst.Path, 1, 77))
				}
				_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCopied)
				if got := d.world.Copier.Last.DstIsZero; got != c.want {
					t.Errorf("DstIsZero is %v, want %v", got, c.want)
				}
			})
		})
	}
}
