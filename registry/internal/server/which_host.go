// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

func (s *Server) placement() relay.Placement {
	return relay.PlacementOf(s.Store.Store, s.Relay.Present)
}

// ofVolume targets the volume that the path names, at its host.
func ofVolume[In any](s *Server) finder[In] {
	return func(ctx context.Context, r *http.Request, _ *In) (target, error) {
		v, err := s.Store.Volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
		if err != nil {
			return target{}, err
		}
		host, err := s.placement().Volume(ctx, v)
		return target{host, v.ID}, err
	}
}

// toDelete targets the volume that the path names, and refuses a volume in use.
func (s *Server) toDelete(ctx context.Context, r *http.Request, _ *routes.None) (target, error) {
	v, err := s.Store.Volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err != nil {
		return target{}, err
	}
	if err := store.CheckDelete(v); err != nil {
		return target{}, err
	}
	host, err := s.placement().Volume(ctx, v)
	return target{host, v.ID}, err
}

// toResize targets the volume that the path names, and refuses a volume that cannot be resized.
func (s *Server) toResize(ctx context.Context, r *http.Request, in *api.VolumeResize) (target, error) {
	if err := in.Check(); err != nil {
		return target{}, err
	}
	v, err := s.Store.Volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err != nil {
		return target{}, err
	}
	if err := store.CheckResize(v); err != nil {
		return target{}, err
	}
	host, err := s.placement().Volume(ctx, v)
	return target{host, v.ID}, err
}

// toPower targets the instance that the path names, and refuses verb for a locked instance.
func toPower[In any](s *Server, verb string) finder[In] {
	return func(ctx context.Context, r *http.Request, _ *In) (target, error) {
		i, err := s.Store.Instances.Get(ctx, httpjson.Reference(r), store.Viewer{})
		if err != nil {
			return target{}, err
		}
		if err := store.CheckUnlocked(verb, i); err != nil {
			return target{}, err
		}
		return found(s.placement().Instance(ctx, i.ID))
	}
}

// found converts the results of Placement to a target.
func found(host api.Host, id string, err error) (target, error) { return target{host, id}, err }

// ofAttachment targets the attachment that the path names, at its host.
func ofAttachment[In any](s *Server) finder[In] {
	return func(ctx context.Context, r *http.Request, _ *In) (target, error) {
		return found(s.placement().Attachment(ctx, httpjson.Reference(r)))
	}
}

// ofMigration targets the migration that the path names, at its host.
func ofMigration[In any](s *Server) finder[In] {
	return func(ctx context.Context, r *http.Request, _ *In) (target, error) {
		return found(s.placement().Migration(ctx, httpjson.Reference(r)))
	}
}

// toStart targets the attachment that the path names, at the host that starts a move of its volume.
// It refuses an instance without a host: there is no guest to keep from src, so the volume is moved
// as a whole.
func (s *Server) toStart(ctx context.Context, r *http.Request, in *api.MigrationTarget) (target, error) {
	if err := s.resolveType(ctx, &in.ToType); err != nil {
		return target{}, err
	}
	a, err := s.Store.Attachments.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err == nil {
		err = a.CheckStart()
	}
	if err != nil {
		return target{}, err
	}
	return found(s.placement().Attachment(ctx, a.ID))
}

// resolveType replaces the name of a volume type by its id; "" stays.
func (s *Server) resolveType(ctx context.Context, ref *string) error {
	if *ref == "" {
		return nil
	}
	typ, err := s.Store.Types.Get(ctx, *ref)
	if err == nil {
		*ref = typ.ID
	}
	return err
}

// toMigrate targets the volume that the path names, at the host that moves it.
func (s *Server) toMigrate(ctx context.Context, r *http.Request, in *api.MigrationTarget) (target, error) {
	v, err := s.Store.Volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err != nil {
		return target{}, err
	}
	if err := s.Store.Volumes.CheckMove(ctx, v); err != nil {
		return target{}, err
	}
	if err := s.resolveType(ctx, &in.ToType); err != nil {
		return target{}, err
	}
	host, err := s.placement().Mover(ctx, v, in.ToPool)
	return target{host, v.ID}, err
}

// toUnshelve targets the first connected host of those that may unshelve the instance. It first
// stores the operator's request, without which the host may not claim the instance.
func (s *Server) toUnshelve(ctx context.Context, r *http.Request, in *api.InstanceUnshelve) (target, error) {
	plan, err := s.Store.Shelf.PlanUnshelve(ctx, httpjson.Reference(r), in.Host)
	if err != nil {
		return target{}, err
	}
	host, err := s.placement().First(ctx, plan.Hosts)
	if err != nil || !s.Relay.Present(host.ID) {
		return target{host, plan.Instance.ID}, err
	}
	return target{host, plan.Instance.ID}, s.Store.Shelf.AskUnshelve(ctx, store.Call{Who: whoIs(r)}, plan.Instance.ID, host.ID)
}

func (s *Server) toAttach(ctx context.Context, r *http.Request, in *api.VolumeAttach) (target, error) {
	return s.atInstance(ctx, r, &in.Instance, store.CheckAttach)
}

func (s *Server) toDetach(ctx context.Context, r *http.Request, in *api.VolumeDetach) (target, error) {
	return s.atInstance(ctx, r, &in.Instance, store.CheckDetach)
}

// atInstance targets the volume that the path names, at the host of the instance in the body, after
// check.
func (s *Server) atInstance(ctx context.Context, r *http.Request, instance *string, check func(api.Volume, api.Instance) error) (to target, err error) {
	i, err := s.Store.Instances.Get(ctx, *instance, store.Viewer{})
	if err != nil {
		return to, err
	}
	v, err := s.Store.Volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err != nil {
		return to, err
	}
	if err := check(v, i); err != nil {
		return to, err
	}
	to.host, *instance, err = s.placement().Instance(ctx, i.ID)
	to.id = v.ID
	return to, err
}

func (s *Server) toCreateVolume(ctx context.Context, r *http.Request, in *api.VolumeCreate) (to target, err error) {
	if to.host, err = s.placement().Create(ctx, r.URL.Query().Get(hostParameter), *in); err != nil {
		return to, err
	}
	if err := s.Store.Volumes.CheckCreate(ctx, *in, to.host.ID); err != nil {
		return to, err
	}
	return to, s.resolveType(ctx, &in.Type)
}

func (s *Server) toAdoptVolume(ctx context.Context, r *http.Request, in *api.VolumeAdopt) (to target, err error) {
	if to.host, err = s.placement().Adopt(ctx, r.URL.Query().Get(hostParameter), in.Pool); err != nil {
		return to, err
	}
	return to, s.resolveType(ctx, &in.Type)
}

func (s *Server) toAdoptInstance(ctx context.Context, r *http.Request, _ *api.InstanceAdopt) (to target, err error) {
	to.host, err = s.placement().Only(ctx, r.URL.Query().Get(hostParameter))
	return to, err
}

// opsOfHost targets the named host, or the only one.
func (s *Server) opsOfHost(ctx context.Context, r *http.Request, _ *routes.None) (to target, err error) {
	to.host, err = s.placement().Only(ctx, r.URL.Query().Get(hostParameter))
	return to, err
}

// ofOp targets the host of the task that began the op in the path.
func (s *Server) ofOp(ctx context.Context, r *http.Request, _ *routes.None) (to target, err error) {
	to.host, err = s.hostOfOp(ctx, r.PathValue("op"))
	return to, err
}

func (s *Server) hostOfOp(ctx context.Context, id string) (api.Host, error) {
	task, _, err := s.Store.Tasks.Get(ctx, api.AskedOp(id))
	if api.CodeOf(err) == api.CodeNotFound {
		return api.Host{}, api.NotFound("operation", id)
	}
	if err != nil {
		return api.Host{}, err
	}
	return s.placement().Host(ctx, task.Host)
}
