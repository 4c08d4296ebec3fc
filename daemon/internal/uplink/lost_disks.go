// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// guardOwner is whose guards those of a fence are.
const guardOwner = "fence"

// Lost returns the disks that domains of this host still name and may not use.
func (u *Uplink) Lost() []LostDisk { return slices.Clone(u.state.current().Lost) }

// settleLost finds out which disks of the domains this host has lost, and keeps
// that. Only then does the view forget the attachments that are gone. An error says
// that it cannot tell of all, or cannot keep it; those that are known are returned with
// it.
func (u *Uplink) settleLost(ctx context.Context) ([]LostDisk, error) {
	now, err := u.cfg.Registry.Attachments(ctx, "", "")
	if err != nil {
		return u.Lost(), fmt.Errorf("read what this host still has: %w", err)
	}
	own := slices.DeleteFunc(slices.Clone(now), func(a api.Attachment) bool { return !u.ours(a.Host) })
	gone := u.goneFrom(own)
	doms, unreadable, blind := u.domainsFor(ctx, gone)
	if blind != nil {
		blind = fmt.Errorf("read the domains: %w", blind)
	}
	before := u.Lost()
	lost := u.findLost(doms, unreadable, gone, own)
	if err := u.unguard(before, lost); err != nil {
		return lost, err
	}
	if err := u.state.updateAnyway(func(m *savedState) { m.Lost = lost }); err != nil || blind != nil {
		return lost, errors.Join(err, blind)
	}
	u.mu.Lock()
	view := u.view
	u.mu.Unlock()
	view.Attachments = now
	if err := writeJSON(u.state.viewPath(), view); err != nil {
		return lost, fmt.Errorf("keep what this host still has: %w", err)
	}
	u.mu.Lock()
	u.view = view
	u.mu.Unlock()
	return lost, u.state.update(func(m *savedState) { m.Granted = nil })
}

// goneFrom are the attachments that this host was granted and are not among its own
// any more.
func (u *Uplink) goneFrom(own []api.Attachment) []api.Attachment {
	still := attachmentsBy(own, attachmentOf)
	return slices.DeleteFunc(u.everGranted(), func(g api.Attachment) bool {
		return slices.ContainsFunc(still[g.ID], func(a api.Attachment) bool { return a.InstanceID == g.InstanceID })
	})
}

// domainsFor reads the domains. Where libvirt does not give a list, those are read one
// by one that may have lost something; the error says that there may be others.
func (u *Uplink) domainsFor(ctx context.Context, gone []api.Attachment) ([]hv.Domain, []hv.UnreadableDomain, error) {
	doms, unreadable, blind := hv.Readable(u.cfg.HV.Domains(ctx))
	if blind == nil {
		return doms, unreadable, nil
	}
	ids := map[string]bool{}
	for _, g := range gone {
		ids[g.InstanceID] = true
	}
	for _, l := range u.Lost() {
		ids[l.InstanceID] = true
	}
	for id := range ids {
		dom, err := u.cfg.HV.Domain(ctx, id)
		switch {
		case err == nil:
			doms = append(doms, *dom)
		case !errors.Is(err, hv.ErrNotFound):
			unreadable = append(unreadable, hv.UnreadableDomain{ID: id, Name: id, Err: err})
		}
	}
	return doms, unreadable, blind
}

// findLost returns the disks of domains that belong to gone attachments, with those
// found before that are still named. A domain that cannot be read has lost what was
// taken from it: whose disks are not known may write to them.
func (u *Uplink) findLost(doms []hv.Domain, unreadable []hv.UnreadableDomain, gone, own []api.Attachment) []LostDisk {
	names := u.volumeNames()
	lost := stillNamed(u.Lost(), doms, unreadable, own)
	add := func(id, name, target string, g api.Attachment, unseen bool) {
		if slices.ContainsFunc(lost, func(l LostDisk) bool { return l.InstanceID == id && l.Path == g.Location.Path }) {
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
				target = g.Device // what it was granted it has, as far as anybody can tell
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

func (u *Uplink) ours(host string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.oursLocked(host)
}

func (u *Uplink) volumeNames() map[string]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	names := map[string]string{}
	for i := range u.view.Volumes {
		names[u.view.Volumes[i].ID] = u.view.Volumes[i].Name
	}
	return names
}

// diskOn finds the disk of a domain that has an image anywhere in its chain,
// running or defined, or mirrors into it; "" if there is none. An error says that it may
// have one.
func diskOn(dom *hv.Domain, path string) (target string, err error) {
	_, target, err = location.DiskOf([]hv.Domain{*dom}, path)
	return target, err
}

// covered reports whether an attachment that this host has allows the domain an
// image.
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

// stillNamed are those lost disks whose domain still names them and has got no
// attachment for them. What a domain names that cannot be read is not known.
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

// reconsider takes the guards of a fence back from instances that name nothing
// any more that this host lost. What cannot be seen leaves them.
func (u *Uplink) reconsider(ctx context.Context) {
	before := u.Lost()
	if len(before) == 0 {
		return
	}
	doms, unreadable, err := hv.Readable(u.cfg.HV.Domains(ctx))
	if err != nil {
		return
	}
	after := stillNamed(before, doms, unreadable, u.granted())
	if len(after) == len(before) {
		return
	}
	if err := u.unguard(before, after); err != nil {
		u.cfg.Log.Warn("an instance is still guarded that has lost nothing any more", "err", err)
		return
	}
	if err := u.state.update(func(m *savedState) { m.Lost = after }); err != nil {
		u.cfg.Log.Warn("what is lost cannot be kept", "err", err)
	}
}

// unguard takes the guards of a fence back from instances that had lost something
// before and have not after.
func (u *Uplink) unguard(before, after []LostDisk) error {
	var errs []error
	for _, d := range before {
		if slices.ContainsFunc(after, func(l LostDisk) bool { return l.InstanceID == d.InstanceID }) {
			continue
		}
		if err := u.cfg.Guards.Clear(d.InstanceID, guardOwner); err != nil {
			errs = append(errs, fmt.Errorf("take the guard of a fence back from instance %s: %w", d.InstanceName, err))
			continue
		}
		u.cfg.Log.Info("an instance names nothing any more that this host lost", "instance", d.InstanceName)
	}
	return errors.Join(errs...)
}
