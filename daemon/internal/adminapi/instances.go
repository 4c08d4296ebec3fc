// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

func (s *instanceAPI) adopt(w http.ResponseWriter, r *http.Request) error {
	in, err := routes.AdoptInstance.Decode(r)
	if err != nil {
		return err
	}
	if (in.Domain == "") != in.All {
		return api.Errorf(api.CodeInvalidArgument, "say which: domain, or all")
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	if _, err := s.uplink.Host(r.Context()); err != nil {
		return err
	}
	if in.All {
		instances, already, err := s.adopter.AdoptAll(r.Context(), id, in)
		if err != nil {
			return err
		}
		return adopted(w, httpjson.Noun{Name: "instances", Value: instances}, already)
	}
	inst, before, err := s.adopter.Adopt(r.Context(), id, in)
	if err != nil {
		return err
	}
	var already []string
	if before {
		already = []string{inst.Name}
	}
	return adopted(w, httpjson.Noun{Name: routes.AdoptInstance.Noun, Value: inst}, already)
}

func adopted(w http.ResponseWriter, what httpjson.Noun, already []string) error {
	if len(already) == 0 {
		return httpjson.WriteAll(w, http.StatusCreated, what)
	}
	return httpjson.WriteAll(w, http.StatusOK, what, httpjson.Noun{Name: "already_adopted", Value: already})
}

func (s *instanceAPI) forget(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Has("with_definition") {
		return s.passing.proxied(w, r) // no host has the instance, so this host has nothing of it
	}
	force, err := forced(r)
	if err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	// If the request is repeated, the instance is gone, and the key below identifies the request.
	ref := r.PathValue("instance")
	inst, lookErr := s.registry.Instance(r.Context(), ref)
	if lookErr != nil {
		inst = api.Instance{ID: ref}
	} else if !force {
		if err := s.instances.CheckForget(r.Context(), inst); err != nil {
			return err
		}
	}
	if err := s.registry.ForgetInstance(r.Context(), id, ref); err != nil {
		return err
	}
	s.uplink.Forgotten(r.Context(), inst.ID) // after an error a report repeats this
	return routes.ForgetInstance.Write(w, http.StatusOK, inst)
}

const startTimeout = 5 * time.Second

// start begins a start. Its answer has the released sources of the instance's volumes that may
// have data which the guest does not see.
func (s *instanceAPI) start(w http.ResponseWriter, r *http.Request) error {
	id, err := opID(r)
	if err != nil {
		return err
	}
	inst, err := s.power("start", s.instances.BeginStart)(r.Context(), id, httpjson.Reference(r), routes.None{})
	if err != nil {
		return err
	}
	var volumes []string
	for _, slot := range inst.BlockDeviceMappings {
		if slot.VolumeID != nil {
			volumes = append(volumes, *slot.VolumeID)
		}
	}
	if len(volumes) == 0 {
		return begun(s.ops, routes.StartInstance, w, r, id, inst)
	}
	ctx, cancel := context.WithTimeout(r.Context(), startTimeout)
	defer cancel()
	left := s.writtenSources(ctx, volumes)
	if len(left) == 0 {
		return begun(s.ops, routes.StartInstance, w, r, id, inst)
	}
	return begun(s.ops, routes.StartInstance, w, r, id, inst, httpjson.Noun{Name: "written_sources", Value: left})
}

// writtenSources returns the released sources that may have data which their volumes lack. If ctx
// ends before the check, it returns the sources known so far: an image may be on a filesystem that
// does not answer.
func (s *instanceAPI) writtenSources(ctx context.Context, volumes []string) []api.ReleasedSource {
	type answer struct {
		left []api.ReleasedSource
		err  error
	}
	looked := make(chan answer, 1)
	go func() {
		left, err := s.moves.Released.WrittenSources(ctx, volumes...)
		looked <- answer{left, err}
	}()
	a := answer{err: context.DeadlineExceeded}
	select {
	case a = <-looked:
	case <-ctx.Done():
	}
	if a.err == nil {
		return a.left
	}
	s.log.Warn("cannot see whether what volumes have left was written", "volumes", volumes, "err", a.err)
	return slices.DeleteFunc(s.moves.Released.KnownWrittenSources(), func(l api.ReleasedSource) bool { return !slices.Contains(volumes, l.VolumeID) })
}
