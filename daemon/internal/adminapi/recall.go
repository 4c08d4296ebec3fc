// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// recall answers a read from what the registry last said.
type recall func(v *uplink.View, r *http.Request) (httpjson.Noun, error)

// stale answers a read from what the registry last said, and says how old that
// is. It returns false if the registry never said anything.
func (s *Server) stale(w http.ResponseWriter, r *http.Request, recall recall) (done bool, err error) {
	view, age, known := s.Uplink.View()
	if !known {
		return false, nil
	}
	view = s.asSeen(r.Context(), letGo(view, s.Attachments.Queued()))
	noun, err := recall(&view, r)
	if err != nil {
		return true, err
	}
	return true, httpjson.WriteAll(w, http.StatusOK, noun,
		httpjson.Noun{Name: "stale", Value: true}, httpjson.Noun{Name: "age_seconds", Value: age.Seconds()})
}

// asSeen is the view with the instances of this host in the state in which they are
// now.
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
			inst.State = instance.StateOf(doms[at].State)
		}
	}
	return v
}

// letGo is the view with those attachments as detaching whose guest has let go,
// and whose release waits for the registry.
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

// all recalls a list.
func all[T any](nouns string, of func(*uplink.View) []T) recall {
	return func(v *uplink.View, r *http.Request) (httpjson.Noun, error) {
		if _, err := httpjson.Query(r); err != nil {
			return httpjson.Noun{}, err
		}
		return httpjson.Noun{Name: nouns, Value: append([]T{}, of(v)...)}, nil
	}
}

// one recalls what the path names by its id, its name, or the beginning of its
// id.
func one[T any](noun string, of func(*uplink.View) []T, called func(*T) (id, name string)) recall {
	return func(v *uplink.View, r *http.Request) (httpjson.Noun, error) {
		if _, err := httpjson.Query(r); err != nil {
			return httpjson.Noun{}, err
		}
		found, err := find(noun, r.PathValue(noun), of(v), called)
		return httpjson.Noun{Name: noun, Value: found}, err
	}
}

// find recalls one thing. What is not remembered may be there all the same, so that is
// no not_found.
func find[T any](noun, ref string, things []T, key func(*T) (id, name string)) (T, error) {
	var none T
	found := api.Lookup(things, ref, key)
	switch len(found) {
	case 0:
		return none, api.Errorf(api.CodeRegistryUnavailable, "the registry is away, and this host remembers no %s %.80s", noun, ref)
	case 1:
		return found[0], nil
	}
	return none, api.Errorf(api.CodeInvalidArgument, "%.80s could be any of %d %ss", ref, len(found), noun)
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

// recallPool recalls a pool, of the host that the query names if several have it.
func recallPool(v *uplink.View, r *http.Request) (httpjson.Noun, error) {
	q, err := httpjson.Query(r, "host")
	if err != nil {
		return httpjson.Noun{}, err
	}
	name, host := r.PathValue("pool"), q.Get("host")
	if host != "" {
		h, err := find("host", host, v.Hosts, hostCalled)
		if err != nil {
			return httpjson.Noun{}, err
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
		return httpjson.Noun{}, api.Errorf(api.CodeRegistryUnavailable, "the registry is away, and this host remembers no pool %.80s", name)
	case 1:
		return httpjson.Noun{Name: "pool", Value: found[0]}, nil
	}
	if p, ok := api.OneShared(found); ok {
		return httpjson.Noun{Name: "pool", Value: p}, nil
	}
	return httpjson.Noun{}, api.Errorf(api.CodeInvalidArgument, "%d hosts have a pool %.80s; say which with host", len(found), name)
}

// recallAttachments recalls those of a volume and at an instance.
func recallAttachments(v *uplink.View, r *http.Request) (httpjson.Noun, error) {
	q, err := httpjson.Query(r, "volume", "instance")
	if err != nil {
		return httpjson.Noun{}, err
	}
	var vol api.Volume
	var inst api.Instance
	if q.Has("volume") {
		if vol, err = find("volume", q.Get("volume"), v.Volumes, volumeCalled); err != nil {
			return httpjson.Noun{}, err
		}
	}
	if q.Has("instance") {
		if inst, err = find("instance", q.Get("instance"), v.Instances, instanceCalled); err != nil {
			return httpjson.Noun{}, err
		}
	}
	found := []api.Attachment{}
	for i := range v.Attachments {
		a := &v.Attachments[i]
		if (vol.ID == "" || a.VolumeID == vol.ID) && (inst.ID == "" || a.InstanceID == inst.ID) {
			found = append(found, *a)
		}
	}
	return httpjson.Noun{Name: "attachments", Value: found}, nil
}
