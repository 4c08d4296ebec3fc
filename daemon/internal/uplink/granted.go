// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// View returns the last view, and the time since it was known to be current; false if the registry
// was never read. The caller must not change the view.
func (u *Uplink) View() (v View, age time.Duration, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	since := u.currentAt
	if since.IsZero() { // the view is an earlier process's
		since = u.view.ReadAt
	}
	return u.view, max(0, time.Since(since)), !u.view.ReadAt.IsZero()
}

// KnownAt returns the attachment of a volume at an instance of this host, from the last view. Both
// may be ids or names.
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

// granted returns this host's attachments, from the last view and the grants since; the latest
// grant of an attachment counts.
func (u *Uplink) granted() []api.Attachment {
	// Before the view: a grant is dropped when a view that contains it is taken on.
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

// attachmentsBy indexes attachments by a key: a host may have thousands, too many for a nested
// loop.
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

// everGranted returns granted() and the previous locations of attachments that moved since the last
// view: until the next view the guest may have either.
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

// oursLocked reports whether a host name or id is this host's. The caller holds mu.
func (u *Uplink) oursLocked(host string) bool {
	return host != "" && (host == u.cfg.HostID || host == u.cfg.HostName || host == u.host.Name)
}

// grant stores that the registry has granted attachments, before their disks are connected: a fence
// must find them.
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

// grantFound is grant for an attachment that was found to be this host's, if it is not yet known in
// this form.
func (u *Uplink) grantFound(found api.Attachment) error {
	if slices.ContainsFunc(u.granted(), func(a api.Attachment) bool {
		return a.ID == found.ID && a.InstanceID == found.InstanceID && a.Location == found.Location
	}) {
		return nil
	}
	return u.grant(found)
}
