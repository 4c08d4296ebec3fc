// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

type reportResult struct {
	busy    bool
	blind   error
	noPools error
}

func always(api.HostReport) bool { return false }

// report describes the host, sends the report, and handles the answer. It sends nothing if skip
// returns true for the report. skip is called under the lock reporting, so that no other report is
// sent meanwhile.
func (u *Uplink) report(ctx context.Context, skip func(api.HostReport) bool) (reportResult, error) {
	r, out := u.describe(ctx)
	if err := u.reporting.lock(ctx); err != nil {
		return out, err
	}
	defer u.reporting.unlock()
	if skip(r) {
		return out, nil
	}
	r.Epoch, r.Mark = u.state.Epoch(), u.state.current().Mark
	bounded, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	host, err := u.send(bounded, r)
	if ctx.Err() != nil {
		return out, ctx.Err() // the caller has gone
	}
	if err == nil {
		err = u.acceptAnswer(host)
	} else {
		err = u.refused(r.Epoch, true, err)
	}
	u.publish(host, err)
	if err == nil {
		u.refreshView(ctx)
	}
	return out, err
}

func (u *Uplink) acceptAnswer(host api.Host) error {
	known := u.state.Epoch()
	if known != 0 && host.Epoch != known {
		return api.Errorf(api.CodeStaleEpoch, "the registry took a report of epoch %d and answered with epoch %d; nothing is done before the two agree", known, host.Epoch)
	}
	u.announceEpoch(host.Epoch)
	return u.state.update(func(m *savedState) {
		m.Epoch = host.Epoch
		if host.Mark != nil {
			m.Mark = host.Mark
		}
	})
}

// describe returns a report of the host. It omits the parts that libvirt or the journal cannot
// provide now: the registry keeps its earlier data of them.
func (u *Uplink) describe(ctx context.Context) (r api.HostReport, out reportResult) {
	// If libvirt does not answer, the registry must not appear unavailable.
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	r = api.HostReport{
		ID: u.cfg.HostID, Name: u.cfg.HostName, Version: u.cfg.Version, BootID: u.cfg.BootID,
		Instances: []api.InstanceReport{},
	}
	pools, err := u.cfg.HV.Pools(ctx)
	if out.noPools = err; err == nil {
		r.Pools = []api.Pool{}
		for _, p := range pools {
			r.Pools = append(r.Pools, u.poolOf(p))
		}
	}
	open, openErr := u.openMigrations(ctx)
	if openErr == nil {
		r.Migrations, out.busy = open, len(open) > 0
	}
	doms, unreadable, blind := hv.Readable(u.cfg.HV.Domains(ctx))
	// Before the first view this host cannot distinguish the disks of volumes from other disks. It
	// reports again once it has a view.
	if _, _, told := u.View(); told {
		granted := u.granted()
		volumes := u.placedVolumes(granted)
		files, err := u.files.look(ctx, r.Pools, doms, granted, volumes)
		if err != nil {
			files = &namedFiles{}
		}
		addUses(r.Pools, doms, unreadable, cmp.Or(blind, err), attachmentsBy(granted, instanceOf), files)
		addVolumes(r.Pools, volumes, files)
		boundUses(r.Pools)
	}
	if out.blind = blind; blind != nil {
		return r, out
	}
	for _, dom := range u.settled(doms) {
		state, standstill := instance.Reported(&dom)
		r.Instances = append(r.Instances, api.InstanceReport{ID: dom.ID, State: state, Standstill: standstill})
	}
	if openErr == nil {
		if v, _, known := u.View(); known {
			u.clearForgotten(ctx, v.Instances)
		}
		r.Instances = u.drifts.find(ctx, r.Instances, doms, unreadable, open, u.remark)
		boundNotes(r.Instances)
	}
	return r, out
}

// settled returns the domains to report. It omits a domain in the middle of a start, a stop or a
// save, but only once: if the next report finds it in that state too, something is wrong.
func (u *Uplink) settled(doms []hv.Domain) []hv.Domain {
	passing := map[string]bool{}
	u.mu.Lock()
	defer u.mu.Unlock()
	told := slices.DeleteFunc(slices.Clone(doms), func(d hv.Domain) bool {
		if d.State != hv.StateOther || instance.StateOf(&d).Standstill() {
			return false
		}
		passing[d.ID] = true
		return !u.passing[d.ID]
	})
	u.passing = passing
	return told
}

func (u *Uplink) poolOf(p hv.PoolInfo) api.Pool {
	free, err := location.FreeBytes(p, location.DirFreeBytes)
	if err != nil || !p.Active {
		free = p.FreeBytes // libvirt's last value
	}
	return api.Pool{
		Name: p.Name, Host: u.cfg.HostID, Type: p.Type, Path: p.Path, Active: p.Active,
		Shared: location.Shared(p.Type) || slices.Contains(u.cfg.SharedPools, p.Name), Multiattach: location.OpenByMany(p.Type),
		CapacityBytes: p.CapacityBytes, FreeBytes: free, UpdatedAt: time.Now().UTC(),
	}
}

// send sends a report. If the registry already has the same data, it sends only a digest. The
// caller holds reporting.
func (u *Uplink) send(ctx context.Context, r api.HostReport) (api.Host, error) {
	now := time.Now()
	if u.lastReport.covers(r, now) {
		host, err := u.cfg.Registry.Report(ctx, api.HostReport{
			ID: r.ID, Name: r.Name, Epoch: r.Epoch, Mark: r.Mark, Digest: u.lastReport.digest, Migrations: r.Migrations,
		})
		if err == nil {
			u.lastReport.heard = now
		}
		if !reportWhole(err) {
			return host, err
		}
	}
	u.lastReport = lastReport{}
	host, err := u.cfg.Registry.Report(ctx, r)
	if err == nil {
		u.lastReport = lastReport{report: r, digest: host.ReportDigest, at: now, heard: now}
	}
	return host, err
}
