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
	"github.com/volferry/volferry/registry/internal/workflow"
)

type targets struct {
	placement   relay.Placement
	volumes     *store.Volumes
	attachments *store.Attachments
	instances   *store.Instances
	types       *store.Types
	tasks       *workflow.Tasks
}

func ofVolume[In any](t *targets) finder[In] {
	return func(ctx context.Context, r *http.Request, _ *In) (target, error) {
		v, err := t.volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
		if err != nil {
			return target{}, err
		}
		host, err := t.placement.Volume(ctx, v)
		return target{host, v.ID}, err
	}
}

func (s *targets) toDelete(ctx context.Context, r *http.Request, _ *routes.None) (target, error) {
	v, err := s.volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err != nil {
		return target{}, err
	}
	if err := store.CheckDelete(v); err != nil {
		return target{}, err
	}
	host, err := s.placement.Volume(ctx, v)
	return target{host, v.ID}, err
}

func (s *targets) toResize(ctx context.Context, r *http.Request, in *api.VolumeResize) (target, error) {
	if err := in.Check(); err != nil {
		return target{}, err
	}
	v, err := s.volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err != nil {
		return target{}, err
	}
	if err := store.CheckResize(v); err != nil {
		return target{}, err
	}
	host, err := s.placement.Volume(ctx, v)
	return target{host, v.ID}, err
}

func toPower[In any](t *targets, verb string) finder[In] {
	return func(ctx context.Context, r *http.Request, _ *In) (target, error) {
		i, err := t.instances.Get(ctx, httpjson.Reference(r), store.Viewer{})
		if err != nil {
			return target{}, err
		}
		if err := store.CheckUnlocked(verb, i); err != nil {
			return target{}, err
		}
		return found(t.placement.Instance(ctx, i.ID))
	}
}

func found(host api.Host, id string, err error) (target, error) { return target{host, id}, err }

func ofAttachment[In any](t *targets) finder[In] {
	return func(ctx context.Context, r *http.Request, _ *In) (target, error) {
		return found(t.placement.Attachment(ctx, httpjson.Reference(r)))
	}
}

func ofMigration[In any](t *targets) finder[In] {
	return func(ctx context.Context, r *http.Request, _ *In) (target, error) {
		return found(t.placement.Migration(ctx, httpjson.Reference(r)))
	}
}

// toStart returns the attachment that the path names, and the host that starts a move of its
// volume. It refuses an instance without a host: the volume is then moved as a whole.
func (s *targets) toStart(ctx context.Context, r *http.Request, in *api.MigrationTarget) (target, error) {
	if err := s.resolveType(ctx, &in.ToType); err != nil {
		return target{}, err
	}
	a, err := s.attachments.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err == nil {
		err = a.CheckStart()
	}
	if err != nil {
		return target{}, err
	}
	return found(s.placement.Attachment(ctx, a.ID))
}

func (s *targets) resolveType(ctx context.Context, ref *string) error {
	if *ref == "" {
		return nil
	}
	typ, err := s.types.Get(ctx, *ref)
	if err == nil {
		*ref = typ.ID
	}
	return err
}

func (s *targets) toMigrate(ctx context.Context, r *http.Request, in *api.MigrationTarget) (target, error) {
	v, err := s.volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err != nil {
		return target{}, err
	}
	if err := s.volumes.CheckMove(ctx, v); err != nil {
		return target{}, err
	}
	if err := s.resolveType(ctx, &in.ToType); err != nil {
		return target{}, err
	}
	host, err := s.placement.Mover(ctx, v, in.ToPool)
	return target{host, v.ID}, err
}

func (s *targets) toAttach(ctx context.Context, r *http.Request, in *api.VolumeAttach) (target, error) {
	return s.atInstance(ctx, r, &in.Instance, store.CheckAttach)
}

func (s *targets) toDetach(ctx context.Context, r *http.Request, in *api.VolumeDetach) (target, error) {
	return s.atInstance(ctx, r, &in.Instance, store.CheckDetach)
}

// atInstance returns the volume that the path names, and the host of the instance in the body, if
// check allows both.
func (s *targets) atInstance(ctx context.Context, r *http.Request, instance *string, check func(api.Volume, api.Instance) error) (to target, err error) {
	i, err := s.instances.Get(ctx, *instance, store.Viewer{})
	if err != nil {
		return to, err
	}
	v, err := s.volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err != nil {
		return to, err
	}
	if err := check(v, i); err != nil {
		return to, err
	}
	to.host, *instance, err = s.placement.Instance(ctx, i.ID)
	to.id = v.ID
	return to, err
}

func (s *targets) toCreateVolume(ctx context.Context, r *http.Request, in *api.VolumeCreate) (to target, err error) {
	if to.host, err = s.placement.Create(ctx, r.URL.Query().Get(hostParameter), *in); err != nil {
		return to, err
	}
	if err := s.volumes.CheckCreate(ctx, *in, to.host.ID); err != nil {
		return to, err
	}
	return to, s.resolveType(ctx, &in.Type)
}

func (s *targets) toAdoptVolume(ctx context.Context, r *http.Request, in *api.VolumeAdopt) (to target, err error) {
	if to.host, err = s.placement.Adopt(ctx, r.URL.Query().Get(hostParameter), in.Pool); err != nil {
		return to, err
	}
	return to, s.resolveType(ctx, &in.Type)
}

func (s *targets) toAdoptInstance(ctx context.Context, r *http.Request, _ *api.InstanceAdopt) (to target, err error) {
	to.host, err = s.placement.Only(ctx, r.URL.Query().Get(hostParameter))
	return to, err
}

func (s *targets) opsOfHost(ctx context.Context, r *http.Request, _ *routes.None) (to target, err error) {
	to.host, err = s.placement.Only(ctx, r.URL.Query().Get(hostParameter))
	return to, err
}

func (s *targets) ofOp(ctx context.Context, r *http.Request, _ *routes.None) (to target, err error) {
	to.host, err = s.hostOfOp(ctx, r.PathValue("op"))
	return to, err
}

func (s *targets) hostOfOp(ctx context.Context, id string) (api.Host, error) {
	task, _, err := s.tasks.Get(ctx, api.AskedOp(id))
	if api.CodeOf(err) == api.CodeNotFound {
		return api.Host{}, api.NotFound("operation", id)
	}
	if err != nil {
		return api.Host{}, err
	}
	return s.placement.Host(ctx, task.Host)
}
