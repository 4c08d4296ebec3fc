// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

// where finds the hosts of things.
func (s *Server) where() relay.Where {
	return relay.Where{Places: s.Store, Present: s.Relay.Present}
}

// ofVolume is the host for the volume that the path names.
func ofVolume[In any](s *Server) finder[In] {
	return func(ctx context.Context, r *http.Request, _ In) (api.Host, error) {
		v, err := s.Store.Volume(ctx, reference(r), store.Viewer{})
		if err != nil {
			return api.Host{}, err
		}
		return s.where().Volume(ctx, v)
	}
}

// ofAttachment is the host of the attachment that the path names.
func ofAttachment[In any](s *Server) finder[In] {
	return func(ctx context.Context, r *http.Request, _ In) (api.Host, error) {
		return s.where().Attachment(ctx, reference(r))
	}
}

// ofMigration is the host of the migration that the path names.
func ofMigration[In any](s *Server) finder[In] {
	return func(ctx context.Context, r *http.Request, _ In) (api.Host, error) {
		return s.where().Migration(ctx, reference(r))
	}
}

// ofInstance is the host of the instance that the path names.
func ofInstance[In any](s *Server) finder[In] {
	return func(ctx context.Context, r *http.Request, _ In) (api.Host, error) {
		return s.where().Instance(ctx, reference(r))
	}
}

// toMigrate is ofVolume, and refuses a volume that is at an instance on the shelf:
// no host could tell of the one that no host has.
func (s *Server) toMigrate(ctx context.Context, r *http.Request, _ api.MigrationTarget) (api.Host, error) {
	if err := s.Store.CheckNotShelved(ctx, reference(r)); err != nil {
		return api.Host{}, err
	}
	return ofVolume[nothing](s)(ctx, r, nothing{})
}

// toUnshelve is the host that is to bring an instance back: of those that may have
// it the first that is there. That an operator asked for it there is noted before
// the host hears of it.
func (s *Server) toUnshelve(ctx context.Context, r *http.Request, in api.InstanceUnshelve) (api.Host, error) {
	plan, err := s.Store.PlanUnshelve(ctx, reference(r), in.Host)
	if err != nil {
		return api.Host{}, err
	}
	host, err := s.where().First(ctx, plan.Hosts)
	if err != nil || !s.Relay.Present(host.ID) {
		return host, err
	}
	return host, s.Store.AskUnshelve(ctx, store.Call{Who: whoIs(r)}, plan.Instance.ID, host.ID)
}

func (s *Server) toAttach(ctx context.Context, _ *http.Request, in api.VolumeAttach) (api.Host, error) {
	return s.where().Instance(ctx, in.Instance)
}

func (s *Server) toDetach(ctx context.Context, _ *http.Request, in api.VolumeDetach) (api.Host, error) {
	return s.where().Instance(ctx, in.Instance)
}

func (s *Server) toCreateVolume(ctx context.Context, r *http.Request, in api.VolumeCreate) (api.Host, error) {
	return s.where().Create(ctx, r.URL.Query().Get(hostParameter), in)
}

func (s *Server) toAdoptVolume(ctx context.Context, r *http.Request, in api.VolumeAdopt) (api.Host, error) {
	return s.where().Adopt(ctx, r.URL.Query().Get(hostParameter), in.Pool)
}

func (s *Server) toAdoptInstance(ctx context.Context, r *http.Request, _ api.InstanceAdopt) (api.Host, error) {
	return s.where().Only(ctx, r.URL.Query().Get(hostParameter))
}

// ofOp is the host of the op that the path names: of the task of that id.
func (s *Server) ofOp(ctx context.Context, r *http.Request, _ nothing) (api.Host, error) {
	return s.hostOfOp(ctx, r.PathValue("op"))
}

func (s *Server) hostOfOp(ctx context.Context, id string) (api.Host, error) {
	task, _, err := s.Store.Task(ctx, api.AskedOp(id))
	if api.CodeOf(err) == api.CodeNotFound {
		return api.Host{}, api.Errorf(api.CodeNotFound, "no operation %.80q was asked for here; the host that runs it knows it", id)
	}
	if err != nil {
		return api.Host{}, err
	}
	return s.where().Host(ctx, task.Host)
}
