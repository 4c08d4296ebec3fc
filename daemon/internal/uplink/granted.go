// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// View returns the last view, and the time since it was known to be current. ok is false if the
// registry was never read. The caller must not change the view.
func (m *Memory) View() (v View, age time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since := m.currentAt
	if since.IsZero() { // the view is an earlier process's
		since = m.view.ReadAt
	}
	return m.view, max(0, time.Since(since)), !m.view.ReadAt.IsZero()
}

// KnownAt returns the attachment of a volume at an instance of this host, from the last view.
// volume and instance are ids or names.
func (m *Memory) KnownAt(_ context.Context, volume, instance string) (api.Attachment, bool) {
	v, _, _ := m.View()
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
	all := m.granted()
	i := slices.IndexFunc(all, func(a api.Attachment) bool { return a.VolumeID == volume && a.InstanceID == instance })
	if i < 0 {
		return api.Attachment{}, false
	}
	return all[i], true
}

// granted returns this host's attachments. The latest grant of an attachment replaces its row in
// the view.
func (m *Memory) granted() []api.Attachment {
	// Grants are read before the view: takeOn sets a view before it drops the grants that the view
	// contains.
	since := m.state.current().Granted
	m.mu.Lock()
	defer m.mu.Unlock()
	out, known := []api.Attachment{}, map[string]bool{}
	for i := range since {
		out = append(out, since[i].Attachment)
		known[since[i].ID] = true
	}
	for i := range m.view.Attachments {
		if a := &m.view.Attachments[i]; m.oursLocked(a.Host) && !known[a.ID] {
			out = append(out, *a)
		}
	}
	return out
}

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

// everGranted returns the attachments of granted, and the previous locations of attachments that
// moved since the last view: until the next view the guest may use either image.
func (m *Memory) everGranted() []api.Attachment {
	out := m.granted()
	known := attachmentsBy(out, attachmentOf)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.view.Attachments {
		a := &m.view.Attachments[i]
		if m.oursLocked(a.Host) && !slices.ContainsFunc(known[a.ID], func(g api.Attachment) bool { return g.Location == a.Location }) {
			out = append(out, *a)
		}
	}
	return out
}

func (m *Memory) hasOnly(now []api.Attachment) error {
	m.mu.Lock()
	view := m.view
	m.mu.Unlock()
	view.Attachments = now
	if err := writeJSON(m.state.viewPath(), view); err != nil {
		return fmt.Errorf("keep what this host still has: %w", err)
	}
	m.mu.Lock()
	m.view = view
	m.mu.Unlock()
	return m.state.update(func(s *savedState) { s.Granted = nil })
}

// grant stores attachments that the registry has granted. It is called before their disks are
// connected, so that a fence finds them.
func (m *Memory) grant(attachments ...api.Attachment) error {
	m.mu.Lock()
	m.taken++
	taken := m.taken
	m.mu.Unlock()
	return m.state.update(func(s *savedState) {
		for _, a := range attachments {
			s.Granted = slices.DeleteFunc(s.Granted, func(g grant) bool { return g.ID == a.ID })
			s.Granted = append(s.Granted, grant{Attachment: a, taken: taken})
		}
	})
}

func (m *Memory) grantFound(found api.Attachment) error {
	if slices.ContainsFunc(m.granted(), func(a api.Attachment) bool {
		return a.ID == found.ID && a.InstanceID == found.InstanceID && a.Location == found.Location
	}) {
		return nil
	}
	return m.grant(found)
}
