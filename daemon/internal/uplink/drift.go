// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// A finding is a Note that is published only once a newer view of the registry confirms it,
// because the present view may be old.
type finding struct {
	Note
	since time.Time
	sure  bool
}

// Note describes how the domain of an instance has changed since Volferry's last operation on it.
type Note struct {
	InstanceID, InstanceName, Text string
	// RunsElsewhere is true if the guest runs on disks that are not at the locations of its
	// volumes.
	RunsElsewhere bool
	// Misnamed is true if the instance is off, and its definition names other images than its
	// volumes'.
	Misnamed bool
}

type drifts struct {
	memory *Memory
	hv     Hypervisor
	guards Guards
	ops    Ops
	log    *slog.Logger

	mu    sync.Mutex
	found map[string]finding // by instance id
}

// Notes returns how instances have changed since Volferry's last operation on them.
func (d *drifts) Notes() []Note {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []Note{}
	for _, f := range d.found {
		if f.sure {
			out = append(out, f.Note)
		}
	}
	slices.SortFunc(out, func(a, b Note) int { return cmp.Compare(a.InstanceName, b.InstanceName) })
	return out
}

// find adds to reports how instances differ from the registry's view. It also guards instances
// that have lost their root volume and have no guard.
func (d *drifts) find(ctx context.Context, reports []api.InstanceReport, doms []hv.Domain, unreadable []hv.UnreadableDomain, open []api.Migration, remark func(instanceID string) string) []api.InstanceReport {
	all := d.memory.granted()
	granted, resting := attachmentsBy(all, instanceOf), attachmentsBy(api.NotMoving(all, open), instanceOf)
	v, _, _ := d.memory.View()
	domains := map[string]*hv.Domain{}
	for i := range doms {
		domains[doms[i].ID] = &doms[i]
	}
	found := map[string]finding{}
	for _, inst := range v.Instances {
		if !d.memory.ours(inst.Host) {
			continue
		}
		inst = withGranted(inst, granted[inst.ID])
		dom := domains[inst.ID]
		what := driftOf(inst, dom, unreadable, resting[inst.ID])
		if what.Gone {
			if i := slices.IndexFunc(doms, func(d hv.Domain) bool { return d.Name == inst.Name && d.ID != inst.ID }); i >= 0 {
				what.Note = instance.UnderAnotherID(inst, &doms[i])
			}
		}
		if what.NoRoot {
			d.guardRoot(ctx, inst)
		}
		// After an error the next report tries again.
		if guards, err := d.guards.Of(inst.ID); err == nil && what.Note == "" {
			what.Note = instance.OrphanedSave(inst, guards)
		}
		f := d.confirmed(finding{Note: Note{
			InstanceID: inst.ID, InstanceName: inst.Name, Text: what.Note,
			RunsElsewhere: what.Differs && dom.State.Active() && !hasMoving(granted[inst.ID], v.Volumes), Misnamed: what.Misnamed,
		}})
		if what.Note != "" {
			found[inst.ID] = f
		}
		switch {
		case f.sure:
			reports = noted(reports, inst.ID, what)
		case what.Note == "" && !inst.State.OnShelf():
			reports = noted(reports, inst.ID, instance.Remark(remark(inst.ID)))
		}
	}
	d.mu.Lock()
	d.found = found
	d.mu.Unlock()
	return reports
}

func hasMoving(atts []api.Attachment, volumes []api.Volume) bool {
	return slices.ContainsFunc(volumes, func(v api.Volume) bool {
		return v.MigrationID != "" && slices.ContainsFunc(atts, func(a api.Attachment) bool { return a.VolumeID == v.ID })
	})
}

func driftOf(inst api.Instance, dom *hv.Domain, unreadable []hv.UnreadableDomain, atts []api.Attachment) instance.Drift {
	if i := slices.IndexFunc(unreadable, func(d hv.UnreadableDomain) bool { return d.ID == inst.ID }); i >= 0 {
		return instance.Drift{Note: instance.Unreadable(unreadable[i])}
	}
	return instance.DriftOf(inst, dom, atts)
}

// confirmed returns the finding with the time of its first observation. It sets sure once a newer
// view has confirmed it.
func (d *drifts) confirmed(f finding) finding {
	if f.Text == "" {
		return f
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before, known := d.found[f.InstanceID]
	if !known || before.Text != f.Text {
		f.since = time.Now()
		return f
	}
	f.since = before.since
	f.sure = before.sure || d.memory.confirmedSince(f.since)
	return f
}

func noted(reports []api.InstanceReport, id string, what instance.Drift) []api.InstanceReport {
	if what.Gone {
		return append(reports, api.InstanceReport{ID: id, State: api.InstanceError, Note: what.Note})
	}
	for i := range reports {
		if reports[i].ID == id {
			reports[i].Note, reports[i].Differs = what.Note, what.Differs
			if what.Elsewhere {
				reports[i].State = api.InstanceError
			}
		}
	}
	return reports
}

// guardRoot sets the missing guard of an instance without a root volume, for example after the
// state directory was restored from a backup. An op that changes this guard may have ended since
// the report read the domains. So guardRoot checks again while it holds the instance's key, which
// excludes ops. While an op holds the key, it leaves the guard to the next report.
func (d *drifts) guardRoot(ctx context.Context, inst api.Instance) {
	d.ops.TryLock([]string{request.PowerKey(inst.ID)}, func() {
		has, err := d.guards.Has(inst.ID, guard.OwnerRoot)
		if err != nil || has || !d.lacksRoot(ctx, inst.ID) {
			return
		}
		if err := d.guards.Set(inst.ID, guard.OwnerRoot, instance.RootReason(inst.Name)); err != nil {
			d.log.Warn("an instance without a root volume cannot be guarded", "instance", inst.Name, "err", err)
			return
		}
		d.log.Warn("an instance without a root volume was not guarded, and is now", "instance", inst.Name)
	})
}

// lacksRoot reports whether the instance has no root. It returns false if the instance cannot be
// read.
func (d *drifts) lacksRoot(ctx context.Context, id string) bool {
	inst, known := d.memory.KnownInstance(ctx, id)
	if !known {
		return false
	}
	dom, err := d.hv.Domain(ctx, id)
	return err == nil && instance.DriftOf(inst, dom, nil).NoRoot
}
