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

// LostDisk is a disk of a domain on a volume that a fence took from this host.
type LostDisk struct {
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name"`
	Target       string `json:"target"`
	Path         string `json:"path"`
	VolumeID     string `json:"volume_id"`
	VolumeName   string `json:"volume_name"`
	AttachmentID string `json:"attachment_id"`
}

// reason is the guard's text, for the person who tries to start the instance.
func (d LostDisk) reason() string {
	return fmt.Sprintf("disk %s is volume %s at %s, which was taken from this host when it was fenced; take the disk out (virsh detach-disk %s %s --config), or attach the volume here again once it is free",
		d.Target, d.VolumeName, d.Path, d.InstanceName, d.Target)
}

// Lost are the disks that domains of this host still name and may not use.
func (u *Uplink) Lost() []LostDisk { return slices.Clone(u.recall().Lost) }

// settleLost finds out which disks of the domains this host has lost, and keeps
// that. Only then does the view forget the attachments that are gone. It returns
// an error if it cannot tell.
func (u *Uplink) settleLost(ctx context.Context) error {
	now, err := u.cfg.Registry.Attachments(ctx, "", "")
	if err != nil {
		return fmt.Errorf("read what this host still has: %w", err)
	}
	doms, err := u.cfg.HV.Domains(ctx)
	if err != nil {
		return fmt.Errorf("read the domains: %w", err)
	}
	own := slices.DeleteFunc(slices.Clone(now), func(a api.Attachment) bool { return !u.ours(a) })
	lost, unknown := u.findLost(doms, own)
	if err := u.remember(func(m *memory) { m.Lost = lost }); err != nil {
		return err
	}
	if unknown != nil {
		return fmt.Errorf("see which disks this host has lost: %w", unknown)
	}
	u.mu.Lock()
	view := u.view
	u.mu.Unlock()
	view.Attachments = now
	if err := writeJSON(u.files.view, view); err != nil {
		return fmt.Errorf("keep what this host still has: %w", err)
	}
	u.mu.Lock()
	u.view = view
	u.mu.Unlock()
	return u.remember(func(m *memory) { m.Granted = nil })
}

// findLost compares what this host was granted with its own attachments now, and
// returns the disks of domains that belong to the difference, with those found
// before that are still named. An error is about disks of which nobody can tell; those
// that are returned are lost.
func (u *Uplink) findLost(doms []hv.Domain, own []api.Attachment) (lost []LostDisk, unknown error) {
	gone := slices.DeleteFunc(u.everGranted(), func(g api.Attachment) bool {
		return slices.ContainsFunc(own, func(a api.Attachment) bool { return a.ID == g.ID && a.InstanceID == g.InstanceID })
	})
	names := u.volumeNames()
	lost = stillNamed(u.Lost(), doms, own)
	for i := range doms {
		for _, g := range gone {
			target, err := diskOn(&doms[i], g.Location.Path)
			named := target != ""
			if named && err == nil {
				var allowed bool
				allowed, err = covered(&doms[i], g.Location.Path, own)
				named = !allowed
			}
			if err != nil {
				unknown = errors.Join(unknown, err)
				continue
			}
			known := slices.ContainsFunc(lost, func(l LostDisk) bool { return l.InstanceID == doms[i].ID && l.Path == g.Location.Path })
			if !named || known {
				continue
			}
			lost = append(lost, LostDisk{
				InstanceID: doms[i].ID, InstanceName: doms[i].Name, Target: target, Path: g.Location.Path,
				VolumeID: g.VolumeID, VolumeName: cmp.Or(names[g.VolumeID], g.VolumeID), AttachmentID: g.ID,
			})
		}
	}
	return lost, unknown
}

func (u *Uplink) ours(a api.Attachment) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.oursLocked(a)
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
// running or defined, or mirrors into it; "" if there is none.
func diskOn(dom *hv.Domain, path string) (target string, err error) {
	_, target, err = location.DiskOf([]hv.Domain{*dom}, path)
	return target, err
}

// covered says whether an attachment that this host has allows the domain an
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
// attachment for them. One of which nobody can tell stays.
func stillNamed(lost []LostDisk, doms []hv.Domain, own []api.Attachment) []LostDisk {
	out := []LostDisk{}
	for _, d := range lost {
		i := slices.IndexFunc(doms, func(dom hv.Domain) bool { return dom.ID == d.InstanceID })
		if i < 0 {
			continue
		}
		target, err := diskOn(&doms[i], d.Path)
		if err == nil && target == "" {
			continue
		}
		if allowed, err2 := covered(&doms[i], d.Path, own); err == nil && err2 == nil && allowed {
			continue
		}
		out = append(out, d)
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
	doms, err := u.cfg.HV.Domains(ctx)
	if err != nil {
		return
	}
	after := stillNamed(before, doms, u.granted())
	if len(after) == len(before) {
		return
	}
	for _, d := range before {
		same := func(l LostDisk) bool { return l.InstanceID == d.InstanceID }
		if slices.ContainsFunc(after, same) {
			continue
		}
		if err := u.cfg.Guards.Clear(d.InstanceID, guardOwner); err != nil {
			u.cfg.Log.Warn("the guard of a fence cannot be taken back", "instance", d.InstanceName, "err", err)
			return
		}
		u.cfg.Log.Info("an instance names nothing any more that this host lost", "instance", d.InstanceName)
	}
	if err := u.remember(func(m *memory) { m.Lost = after }); err != nil {
		u.cfg.Log.Warn("what is lost cannot be kept", "err", err)
	}
}
