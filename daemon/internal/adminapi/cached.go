// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

type cached[Out any] func(v *uplink.View, q question) (Out, error)

type question struct {
	noun, ref string
	query     url.Values
}

// stale answers a read with the uplink's last view, and the view's age. It returns false if there
// is no view.
func stale[Out any](s *Server, w http.ResponseWriter, r *http.Request, route routes.Route[routes.None, Out], lookup cached[Out]) (done bool, err error) {
	view, age, known := s.Uplink.View()
	if !known {
		return false, nil
	}
	view = s.asSeen(r.Context(), letGo(view, s.Attachments.Queued()))
	if s.Migrations != nil {
		moved, err := s.Migrations.Which.Moved(r.Context(), view.Volumes)
		if err != nil {
			return true, err
		}
		view = asMoved(view, moved)
	}
	out, err := lookup(&view, question{noun: route.Noun, ref: httpjson.Reference(r), query: r.URL.Query()})
	if err != nil {
		return true, err
	}
	return true, httpjson.WriteAll(w, http.StatusOK, httpjson.Noun{Name: route.Noun, Value: out},
		httpjson.Noun{Name: "stale", Value: true}, httpjson.Noun{Name: "age_seconds", Value: age.Seconds()})
}

func (s *Server) asSeen(ctx context.Context, v uplink.View) uplink.View {
	doms, _, err := hv.Readable(s.HV.Domains(ctx))
	if err != nil {
		return v
	}
	v.Instances = slices.Clone(v.Instances)
	for i := range v.Instances {
		inst := &v.Instances[i]
		here := inst.Host == s.HostID || inst.Host == s.HostName
		at := slices.IndexFunc(doms, func(d hv.Domain) bool { return d.ID == inst.ID })
		if here && at >= 0 && inst.State != api.InstanceShelved {
			inst.State = instance.StateOf(&doms[at])
		}
	}
	return v
}

func asMoved(v uplink.View, moved map[string]api.Location) uplink.View {
	if len(moved) == 0 {
		return v
	}
	attached := func(known []api.Attachment) []api.Attachment {
		out := slices.Clone(known)
		for i := range out {
			if at, ok := moved[out[i].VolumeID]; ok {
				out[i].Location = at
			}
		}
		return out
	}
	v.Attachments, v.Volumes = attached(v.Attachments), slices.Clone(v.Volumes)
	for i := range v.Volumes {
		vol := &v.Volumes[i]
		if at, ok := moved[vol.ID]; ok {
			vol.Location = at
		}
		vol.Attachments = attached(vol.Attachments)
	}
	return v
}

// letGo returns the view with the state detaching for attachments with a queued release: the
// registry has not released them yet.
func letGo(v uplink.View, queued []api.Attachment) uplink.View {
	if len(queued) == 0 {
		return v
	}
	told := func(known []api.Attachment) []api.Attachment {
		out := slices.Clone(known)
		for i := range out {
			if slices.ContainsFunc(queued, func(q api.Attachment) bool { return q.ID == out[i].ID }) {
				out[i].State = api.AttachmentDetaching
			}
		}
		return out
	}
	v.Attachments, v.Volumes = told(v.Attachments), slices.Clone(v.Volumes)
	for i := range v.Volumes {
		v.Volumes[i].Attachments = told(v.Volumes[i].Attachments)
	}
	return v
}

func all[T any](of func(*uplink.View) []T) cached[[]T] {
	return func(v *uplink.View, _ question) ([]T, error) { return append([]T{}, of(v)...), nil }
}

func one[T any](of func(*uplink.View) []T, called func(*T) (id, name string)) cached[T] {
	return func(v *uplink.View, q question) (T, error) { return find(q.noun, q.ref, of(v), called) }
}

// find returns one thing of a view. If the view lacks it, the error is not not_found, because the
// registry may have it.
func find[T any](noun, ref string, things []T, key func(*T) (id, name string)) (T, error) {
	var none T
	found := api.Lookup(things, ref, key)
	switch len(found) {
	case 0:
		return none, api.Errorf(api.CodeRegistryUnavailable, "the registry is away, and this host remembers no %s %.80s", noun, ref)
	case 1:
		return found[0], nil
	}
	var candidates []string
	for i := range found[:min(len(found), 10)] {
		id, name := key(&found[i])
		candidates = append(candidates, strings.TrimSpace(id+" "+name))
	}
	return none, api.Errorf(api.CodeInvalidArgument, "%.80s could be any of the %ss %s; give the whole id", ref, noun, strings.Join(candidates, ", "))
}

func hosts(v *uplink.View) []api.Host                { return v.Hosts }
func pools(v *uplink.View) []api.Pool                { return v.Pools }
func types(v *uplink.View) []api.VolumeType          { return v.Types }
func policies(v *uplink.View) []api.Policy           { return v.Policies }
func volumes(v *uplink.View) []api.Volume            { return v.Volumes }
func instances(v *uplink.View) []api.Instance        { return v.Instances }
func attachments(v *uplink.View) []api.Attachment    { return v.Attachments }
func hostCalled(h *api.Host) (id, name string)       { return h.ID, h.Name }
func typeCalled(t *api.VolumeType) (id, name string) { return t.ID, t.Name }
func policyCalled(p *api.Policy) (id, name string)   { return "", p.Name }
func volumeCalled(x *api.Volume) (id, name string)   { return x.ID, x.Name }

func instanceCalled(i *api.Instance) (id, name string)     { return i.ID, i.Name }
func attachmentCalled(a *api.Attachment) (id, name string) { return a.ID, "" }

func cachedPool(v *uplink.View, q question) (api.Pool, error) {
	name, host := q.ref, q.query.Get("host")
	if host != "" {
		h, err := find("host", host, v.Hosts, hostCalled)
		if err != nil {
			return api.Pool{}, err
		}
		host = h.ID + " " + h.Name
	}
	var found []api.Pool
	for _, p := range v.Pools {
		if p.Name == name && (host == "" || slices.Contains(strings.Fields(host), p.Host)) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return api.Pool{}, api.Errorf(api.CodeRegistryUnavailable, "the registry is away, and this host remembers no pool %.80s", name)
	case 1:
		return found[0], nil
	}
	if p, ok := api.OneShared(found); ok {
		return p, nil
	}
	return api.Pool{}, api.Errorf(api.CodeInvalidArgument, "%d hosts have a pool %.80s; say which with host", len(found), name)
}

func cachedAttachments(v *uplink.View, q question) (_ []api.Attachment, err error) {
	var vol api.Volume
	var inst api.Instance
	if q.query.Has("volume") {
		if vol, err = find("volume", q.query.Get("volume"), v.Volumes, volumeCalled); err != nil {
			return nil, err
		}
	}
	if q.query.Has("instance") {
		if inst, err = find("instance", q.query.Get("instance"), v.Instances, instanceCalled); err != nil {
			return nil, err
		}
	}
	found := []api.Attachment{}
	for i := range v.Attachments {
		a := &v.Attachments[i]
		if (vol.ID == "" || a.VolumeID == vol.ID) && (inst.ID == "" || a.InstanceID == inst.ID) {
			found = append(found, *a)
		}
	}
	return found, nil
}
