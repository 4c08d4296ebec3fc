// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// View is what the registry last said of what this host may see. It answers
// reads while the registry is away, and says what the host had when it learns
// that it was fenced.
type View struct {
	// ReadAt is when it was read, for people; Mark how far the registry was.
	ReadAt      time.Time         `json:"read_at"`
	Mark        *api.RegistryMark `json:"mark,omitempty"`
	Hosts       []api.Host        `json:"hosts"`
	Pools       []api.Pool        `json:"pools"`
	Types       []api.VolumeType  `json:"types"`
	Policies    []api.Policy      `json:"policies"`
	Volumes     []api.Volume      `json:"volumes"`
	Instances   []api.Instance    `json:"instances"`
	Attachments []api.Attachment  `json:"attachments"`
}

// pendingView is a view that was read after a report. It counts only when a later
// report under the same epoch was taken: then the host was not fenced when it
// was read, so an attachment that is missing in it was not taken by force.
type pendingView struct {
	view View
	at   time.Time // when it was read
	// taken is how many grants there were before it was read.
	taken int64
}

// look takes on the view that was read after the report before, and reads a new
// one if the registry has moved on. The caller holds reporting and has just been
// told by the registry that its epoch is right.
func (u *Uplink) refreshView(ctx context.Context) {
	if c := u.pendingView; c != nil {
		u.pendingView = nil
		if err := u.takeOn(*c); err != nil {
			u.cfg.Log.Warn("what the registry says cannot be kept", "err", err)
			return
		}
	}
	u.reconsider(ctx)
	if !u.due() {
		return
	}
	u.mu.Lock()
	c := pendingView{taken: u.taken, at: time.Now()}
	first := u.view.ReadAt.IsZero()
	u.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := u.read(bounded, &c.view); err != nil {
		u.cfg.Log.Debug("what the registry says cannot be read now", "err", err)
		return
	}
	u.pendingView = &c
	if first {
		u.Changed() // the next report makes it count
	}
}

// viewEvery bounds how often a view is read: on a large site the registry always
// has something new, most of it of other hosts.
const viewEvery = 15 * time.Second

// due says whether a view is to be read: the registry has more to say than the
// one there is, which has had its time.
func (u *Uplink) due() bool {
	now := u.state.current().Mark
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := u.view.Mark
	if !u.view.ReadAt.IsZero() && seen != nil && now != nil && *seen == *now {
		u.currentAt = time.Now()
		return false
	}
	return u.currentAt.IsZero() || time.Since(u.currentAt) >= viewEvery
}

// takeOn makes a view the one that counts, durably.
func (u *Uplink) takeOn(c pendingView) error {
	if err := writeJSON(u.state.viewPath(), c.view); err != nil {
		return err
	}
	u.mu.Lock()
	u.view, u.currentAt = c.view, c.at
	u.mu.Unlock()
	// Grants of before are in the view, or were released.
	return u.state.update(func(m *savedState) {
		m.Granted = slices.DeleteFunc(m.Granted, func(g grant) bool { return g.taken <= c.taken })
	})
}

// read fills a view with what the registry says now.
func (u *Uplink) read(ctx context.Context, v *View) error {
	v.Mark, v.ReadAt = u.state.current().Mark, time.Now().UTC()
	r := u.cfg.Registry
	for _, fill := range []func() error{
		func() (err error) { v.Hosts, err = r.Hosts(ctx); return },
		func() (err error) { v.Pools, err = r.Pools(ctx); return },
		func() (err error) { v.Types, err = r.Types(ctx); return },
		func() (err error) { v.Policies, err = r.Policies(ctx); return },
		func() (err error) { v.Volumes, err = r.Volumes(ctx); return },
		func() (err error) { v.Instances, err = r.Instances(ctx); return },
		func() (err error) { v.Attachments, err = r.Attachments(ctx, "", ""); return },
	} {
		if err := fill(); err != nil {
			return fmt.Errorf("read what the registry says: %w", err)
		}
	}
	return nil
}

// View returns what the registry last said, and how long ago that was known to
// be so. It is false if it never said anything. The caller does not change it.
func (u *Uplink) View() (v View, age time.Duration, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	since := u.currentAt
	if since.IsZero() { // it is from an earlier process
		since = u.view.ReadAt
	}
	return u.view, max(0, time.Since(since)), !u.view.ReadAt.IsZero()
}

// KnownAt finds the attachment of a volume at an instance of this host, both by
// id or name, by what the registry last said.
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
	out := []api.Attachment{}
	for i := range since {
		out = append(out, since[i].Attachment)
	}
	for i := range u.view.Attachments {
		a := u.view.Attachments[i]
		if u.oursLocked(a) && !slices.ContainsFunc(out, func(g api.Attachment) bool { return g.ID == a.ID }) {
			out = append(out, a)
		}
	}
	return out
}

// everGranted is granted with what the registry last said of attachments that have
// moved since: until the next view the guest may have them at either place.
func (u *Uplink) everGranted() []api.Attachment {
	out := u.granted()
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.view.Attachments {
		a := u.view.Attachments[i]
		if u.oursLocked(a) && !slices.ContainsFunc(out, func(g api.Attachment) bool { return g.ID == a.ID && g.Location == a.Location }) {
			out = append(out, a)
		}
	}
	return out
}

// oursLocked says whether an attachment is one of this host, which the registry
// names by its name or its id. The caller holds mu.
func (u *Uplink) oursLocked(a api.Attachment) bool {
	return a.Host != "" && (a.Host == u.cfg.HostID || a.Host == u.cfg.HostName || a.Host == u.host.Name)
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
