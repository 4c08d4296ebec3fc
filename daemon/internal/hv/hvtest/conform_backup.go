// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var backupTests = map[string]func(*testing.T, *bench){
	"BesideABackupNothingChangesItsDisk": testBesideABackup,
}

func testBesideABackup(t *testing.T, b *bench) {
	g, ctx := b.start(t), t.Context()
	top := g.snapshot(t)
	over, dst := g.over(t, "over.qcow2", top), g.image(t, "dst.raw", Raw)
	end := b.BeginBackup(t, g.id, "vda")
	job, err := g.hv.Job(ctx, g.id, "vda")
	ok(t, err)
	if job == nil || job.Kind != hv.JobBackup {
		t.Errorf("Job = %+v, want a job of kind %s", job, hv.JobBackup)
	}
	if mirror := g.domain(t).LiveDisk("vda").Mirror; mirror != nil {
		t.Errorf("the disk has the mirror %+v", mirror)
	}
	calls := []struct {
		name string
		do   func() error
		undo func() error
	}{
		{"GrowDisk", func() error { return g.hv.GrowDisk(ctx, g.id, "vda", grownBytes) }, nil},
		{
			"BlockCopy", func() error { return g.hv.BlockCopy(ctx, g.id, "vda", dst, slowCopy) },
			func() error { return g.hv.AbortJob(ctx, g.id, "vda") },
		},
		{
			"CommitActive", func() error { return g.hv.CommitActive(ctx, g.id, "vda", 0) },
			func() error { return g.hv.AbortJob(ctx, g.id, "vda") },
		},
		{"Snapshot", func() error { return g.putOverlay(ctx, g.id, "vda", over) }, nil},
		{"DetachDisk", func() error { return g.hv.DetachDisk(ctx, g.id, hv.Live, "vda") }, nil},
	}
	for _, c := range calls {
		if err := c.do(); !errors.Is(err, hv.ErrBusy) || errors.Is(err, hv.ErrUnsupported) {
			t.Errorf("%s = %v, want ErrBusy", c.name, err)
		}
	}
	ok(t, g.hv.Suspend(ctx, g.id))
	ok(t, g.hv.Resume(ctx, g.id))
	if job, err := g.hv.Job(ctx, g.id, "vda"); err != nil || job == nil {
		t.Errorf("the backup was ended: %+v, %v", job, err)
	}
	end()
	g.wantLive(t, top, g.src)
	for _, c := range calls[1:3] {
		if err := c.do(); err != nil {
			t.Errorf("%s after the backup: %v", c.name, err)
		}
		ok(t, c.undo())
	}
}
