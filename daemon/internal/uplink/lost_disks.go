// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

const guardOwner = "fence"

type losses struct {
	memory   *Memory
	state    *State
	hv       Hypervisor
	registry Registry
	guards   Guards
	log      *slog.Logger
}

// Lost returns the disks of volumes that a fence took from this host, if domains still name the
// disks.
func (l *losses) Lost() []LostDisk { return slices.Clone(l.state.current().Lost) }

// settleLost determines and stores which disks of domains this host has lost. After that it drops
// the lost attachments from the view. After an error the returned disks are incomplete or not
// stored.
func (l *losses) settleLost(ctx context.Context) ([]LostDisk, error) {
	now, err := l.registry.Attachments(ctx, "", "")
	if err != nil {
		return l.Lost(), fmt.Errorf("read what this host still has: %w", err)
	}
	own := slices.DeleteFunc(slices.Clone(now), func(a api.Attachment) bool { return !l.memory.ours(a.Host) })
	gone := l.goneFrom(own)
	doms, unreadable, blind := l.domainsFor(ctx, gone)
	if blind != nil {
		blind = fmt.Errorf("read the domains: %w", blind)
	}
	before := l.Lost()
	lost := l.findLost(doms, unreadable, gone, own)
	if err := l.unguard(before, lost); err != nil {
		return lost, err
	}
	if err := l.state.updateAnyway(func(m *savedState) { m.Lost = lost }); err != nil || blind != nil {
		return lost, errors.Join(err, blind)
	}
	return lost, l.memory.hasOnly(now)
}

func (l *losses) goneFrom(own []api.Attachment) []api.Attachment {
	still := attachmentsBy(own, attachmentOf)
	return slices.DeleteFunc(l.memory.everGranted(), func(g api.Attachment) bool {
		return slices.ContainsFunc(still[g.ID], func(a api.Attachment) bool { return a.InstanceID == g.InstanceID })
	})
}

// domainsFor reads the domains. If libvirt cannot list them, it reads each domain that may have
// lost a disk, and returns an error, because there may be other domains.
func (l *losses) domainsFor(ctx context.Context, gone []api.Attachment) ([]hv.Domain, []hv.UnreadableDomain, error) {
	doms, unreadable, blind := hv.Readable(l.hv.Domains(ctx))
	if blind == nil {
		return doms, unreadable, nil
	}
	ids := map[string]bool{}
	for _, g := range gone {
		ids[g.InstanceID] = true
	}
	for _, l := range l.Lost() {
		ids[l.InstanceID] = true
	}
	for id := range ids {
		dom, err := l.hv.Domain(ctx, id)
		switch {
		case err == nil:
			doms = append(doms, *dom)
		case !errors.Is(err, hv.ErrNotFound):
			unreadable = append(unreadable, hv.UnreadableDomain{ID: id, Name: id, Err: err})
		}
	}
	return doms, unreadable, blind
}

// findLost returns the disks that domains have on the gone attachments, which this host has no
// longer, and the earlier lost disks that domains still name. For an unreadable domain it returns
// a disk on each gone attachment of the domain, because the domain may write there.
func (l *losses) findLost(doms []hv.Domain, unreadable []hv.UnreadableDomain, gone, own []api.Attachment) []LostDisk {
	names := l.memory.volumeNames()
	lost := stillNamed(l.Lost(), doms, unreadable, own)
	add := func(id, name, target string, g api.Attachment, unseen bool) {
		if slices.ContainsFunc(lost, func(d LostDisk) bool { return d.InstanceID == id && d.Path == g.Location.Path }) {
			return
		}
		lost = append(lost, LostDisk{
			InstanceID: id, InstanceName: name, Target: target, Path: g.Location.Path, Unseen: unseen,
			VolumeID: g.VolumeID, VolumeName: cmp.Or(names[g.VolumeID], g.VolumeID), AttachmentID: g.ID,
		})
	}
	for i := range doms {
		for _, g := range gone {
			target, unknown := diskOn(&doms[i], g.Location.Path)
			if target == "" && unknown != nil && g.InstanceID == doms[i].ID {
				target = g.Device // its granted device is assumed
			}
			if target == "" {
				continue
			}
			if allowed, _ := covered(&doms[i], g.Location.Path, own); !allowed {
				add(doms[i].ID, doms[i].Name, target, g, false)
			}
		}
	}
	for _, d := range unreadable {
		for _, g := range gone {
			if g.InstanceID == d.ID {
				add(d.ID, d.Name, g.Device, g, true)
			}
		}
	}
	return lost
}

// diskOn returns the target of the domain's disk that has the image at path in its chain, or
// mirrors into that image. With an error it is unknown whether there is such a disk.
func diskOn(dom *hv.Domain, path string) (target string, err error) {
	_, target, err = location.DiskOf([]hv.Domain{*dom}, path)
	return target, err
}

func covered(dom *hv.Domain, path string, own []api.Attachment) (yes bool, err error) {
	place := location.PlaceOf(path)
	for _, a := range own {
		if a.InstanceID != dom.ID {
			continue
		}
		same, unknown := place.Is(a.Location.Path)
		if same {
			return true, nil
		}
		err = errors.Join(err, unknown)
	}
	return false, err
}

// stillNamed returns the disks of lost that their domain still names, unless an attachment in own
// permits them. It also returns the disks of unreadable domains.
func stillNamed(lost []LostDisk, doms []hv.Domain, unreadable []hv.UnreadableDomain, own []api.Attachment) []LostDisk {
	out := []LostDisk{}
	for _, d := range lost {
		if slices.ContainsFunc(unreadable, func(dom hv.UnreadableDomain) bool { return dom.ID == d.InstanceID }) {
			out = append(out, d)
			continue
		}
		i := slices.IndexFunc(doms, func(dom hv.Domain) bool { return dom.ID == d.InstanceID })
		if i < 0 {
			continue
		}
		target, unknown := diskOn(&doms[i], d.Path)
		if target == "" && unknown == nil {
			continue
		}
		if allowed, _ := covered(&doms[i], d.Path, own); !allowed {
			d.Unseen = false
			out = append(out, d)
		}
	}
	return out
}

// reconsider clears the guard that a fence has set for a domain, once the domain names no lost
// disk any more. An unreadable domain keeps its guard.
func (l *losses) reconsider(ctx context.Context) {
	before := l.Lost()
	if len(before) == 0 {
		return
	}
	doms, unreadable, err := hv.Readable(l.hv.Domains(ctx))
	if err != nil {
		return
	}
	after := stillNamed(before, doms, unreadable, l.memory.granted())
	if len(after) == len(before) {
		return
	}
	if err := l.unguard(before, after); err != nil {
		l.log.Warn("an instance is still guarded that has lost nothing any more", "err", err)
		return
	}
	if err := l.state.update(func(m *savedState) { m.Lost = after }); err != nil {
		l.log.Warn("what is lost cannot be kept", "err", err)
	}
}

func (l *losses) unguard(before, after []LostDisk) error {
	var errs []error
	for _, d := range before {
		if slices.ContainsFunc(after, func(o LostDisk) bool { return o.InstanceID == d.InstanceID }) {
			continue
		}
		if err := l.guards.Clear(d.InstanceID, guardOwner); err != nil {
			errs = append(errs, fmt.Errorf("take the guard of a fence back from instance %s: %w", d.InstanceName, err))
			continue
		}
		l.log.Info("an instance names nothing any more that this host lost", "instance", d.InstanceName)
	}
	return errors.Join(errs...)
}
