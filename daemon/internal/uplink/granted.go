// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// View returns what the registry last said, and how long ago that was known to be up to
// date. It returns false if the registry never said anything. The caller must not change
// it.
func (u *Uplink) View() (v View, age time.Duration, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	since := u.currentAt
	if since.IsZero() { // it is from an earlier process
		since = u.view.ReadAt
	}
	return u.view, max(0, time.Since(since)), !u.view.ReadAt.IsZero()
}

// KnownAt finds the attachment of a volume at an instance of this host in what the registry
// last said. Both may be ids or names.
func (u *Uplink) KnownAt(_ context.Context, volume, instance string) (api.Attachment, bool) {
	v, _, _ := u.View()
	for i := range v.Volumes {
		if v.Volumes[i].Name == volume {
			volume = v.Volumes[i].ID
		}
	}
	for i := range v.Instances {
		if v.Instances[i].Name == instance {
			instance = v.Instances[i].ID
		}
	}
	all := u.granted()
	i := slices.IndexFunc(all, func(a api.Attachment) bool { return a.VolumeID == volume && a.InstanceID == instance })
	if i < 0 {
		return api.Attachment{}, false
	}
	return all[i], true
}

// granted are the attachments of this host by what the registry last said, and
// by what it has granted since: what an attachment was granted as last counts.
func (u *Uplink) granted() []api.Attachment {
	// Before the view: a grant is dropped when a view that has it is taken on.
	since := u.state.current().Granted
	u.mu.Lock()
	defer u.mu.Unlock()
	out, known := []api.Attachment{}, map[string]bool{}
	for i := range since {
		out = append(out, since[i].Attachment)
		known[since[i].ID] = true
	}
	for i := range u.view.Attachments {
		if a := &u.view.Attachments[i]; u.oursLocked(a.Host) && !known[a.ID] {
			out = append(out, *a)
		}
	}
	return out
}

// attachmentsBy are attachments by the key of each: a host may have thousands, too many to compare
// each with each.
func attachmentsBy(atts []api.Attachment, key func(a *api.Attachment) string) map[string][]api.Attachment {
	by := map[string][]api.Attachment{}
	for i := range atts {
		k := key(&atts[i])
		by[k] = append(by[k], atts[i])
	}
	return by
}

func instanceOf(a *api.Attachment) string   { return a.InstanceID }
func volumeOf(a *api.Attachment) string     { return a.VolumeID }
func attachmentOf(a *api.Attachment) string { return a.ID }

// everGranted is granted with what the registry last said of attachments that have
// moved since: until the next view the guest may have them at either place.
func (u *Uplink) everGranted() []api.Attachment {
	out := u.granted()
	known := attachmentsBy(out, attachmentOf)
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.view.Attachments {
		a := &u.view.Attachments[i]
		if u.oursLocked(a.Host) && !slices.ContainsFunc(known[a.ID], func(g api.Attachment) bool { return g.Location == a.Location }) {
			out = append(out, *a)
		}
	}
	return out
}

// oursLocked reports whether the host that the registry has for something, by its name or its id,
// is this one. The caller holds mu.
func (u *Uplink) oursLocked(host string) bool {
	return host != "" && (host == u.cfg.HostID || host == u.cfg.HostName || host == u.host.Name)
}

// grant keeps that the registry has granted attachments, before their disks are
// connected: a fence must find them.
func (u *Uplink) grant(attachments ...api.Attachment) error {
	u.mu.Lock()
	u.taken++
	taken := u.taken
	u.mu.Unlock()
	return u.state.update(func(m *savedState) {
		for _, a := range attachments {
			m.Granted = slices.DeleteFunc(m.Granted, func(g grant) bool { return g.ID == a.ID })
			m.Granted = append(m.Granted, grant{Attachment: a, taken: taken})
		}
	})
}

// grantFound is grant of an attachment that was found to be this host's, if it is
// not known as it is.
func (u *Uplink) grantFound(found api.Attachment) error {
	if slices.ContainsFunc(u.granted(), func(a api.Attachment) bool {
		return a.ID == found.ID && a.InstanceID == found.InstanceID && a.Location == found.Location
	}) {
		return nil
	}
	return u.grant(found)
}
