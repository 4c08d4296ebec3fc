// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

// retype changes the type of a volume: at once if its bytes may stay, else by a migration that
// changes type and location together at its end. A repeated request takes the same way and gets the
// same answer.
func (s *Server) retype(w http.ResponseWriter, r *http.Request) error {
	call, in, err := readChange[api.VolumeRetype](r)
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	asked := asAsked(r, "", body)
	if before, err := s.askedBefore(r.Context(), call.Key); before.Path != "" || err != nil {
		if err != nil {
			return err
		}
		return s.pass(w, r, asked, call.Key, withdrawnMeanwhile)
	}
	// Try this first: the retype may be done already, whatever would prevent it now.
	v, refusal := s.Store.Retypes.Retype(r.Context(), call, httpjson.Reference(r), in)
	if refusal == nil {
		return routes.RetypeVolume.Write(w, http.StatusOK, v)
	}
	if !store.IsMove(refusal) {
		return refusal
	}
	plan, err := s.Store.Retypes.Plan(r.Context(), httpjson.Reference(r), in)
	if err != nil || plan.InPlace {
		return cmp.Or(err, refusal)
	}
	return s.pass(w, r, asked, call.Key, func(ctx context.Context) (relay.Request, error) {
		return s.retypeMove(ctx, plan, in, routes.MigrateVolume.PathOf(plan.Volume.ID))
	})
}

// withdrawnMeanwhile answers a request that was passed on before, and was withdrawn since.
func withdrawnMeanwhile(context.Context) (relay.Request, error) {
	return relay.Request{}, api.Errorf(api.CodeHypervisorUnavailable, "the host did not fetch the request in time; it was withdrawn and nothing was done; ask again")
}

// planRetype plans a retype; the host that would move the volume plans the move.
func (s *Server) planRetype(r *http.Request, call store.Call, in api.VolumeRetype) (api.RetypePlan, error) {
	plan, err := s.Store.Retypes.Plan(r.Context(), httpjson.Reference(r), in)
	if err != nil {
		return api.RetypePlan{}, err
	}
	v := plan.Volume
	out := api.RetypePlan{VolumeID: v.ID, VolumeName: v.Name, FromType: v.Type, ToType: plan.Type.Name, Location: v.Location}
	if plan.InPlace {
		return out, nil
	}
	req, err := s.retypeMove(r.Context(), plan, in, routes.PlanMigration.PathOf(v.ID))
	if err != nil {
		return out, err
	}
	req.Who, req.Change, req.Key = call.Who, true, uuid.NewString()
	move, err := answerOf[api.MigrationPlan](r.Context(), s, req, routes.PlanMigration.Noun)
	if err == nil && plan.ToPath != "" { // the host has found its pool, if any
		err = s.Store.Retypes.CheckDst(r.Context(), plan, req.HostID, move.Dst)
	}
	out.Move = &move
	return out, err
}

// retypeMove returns the call that moves a volume with its new type, or plans that; path selects.
func (s *Server) retypeMove(ctx context.Context, plan store.RetypePlan, in api.VolumeRetype, path string) (req relay.Request, err error) {
	host, err := s.placement().Mover(ctx, plan.Volume, plan.ToPool)
	if err != nil {
		return req, err
	}
	req = relay.Request{HostID: host.ID, HostName: host.Name, Method: http.MethodPost, Path: path}
	return req.With(api.MigrationTarget{
		ToPool: plan.ToPool, ToPath: plan.ToPath, ToFormat: in.ToFormat, ToType: plan.Type.ID, Method: in.Method, CopyOptions: in.CopyOptions(), DeleteSource: in.DeleteSource, Overwrite: in.Overwrite, Checkpoints: in.Checkpoints,
	})
}

// deleteAttachment passes the request to the attachment's host, which checks whether the guest has
// the disk. The registry itself deletes the attachment if no host has the instance or, with force,
// if the host is fenced; then it relies on the operator.
func (s *Server) deleteAttachment(w http.ResponseWriter, r *http.Request) error {
	force, err := boolean(r.URL.Query(), "force")
	if err != nil {
		return err
	}
	if done, err := s.deleteShelved(w, r); done || err != nil {
		return err
	}
	if force {
		done, err := s.forceDelete(w, r)
		if done || err != nil {
			return err
		}
	}
	return relaying(s, ofAttachment[routes.None](s))(w, r)
}

// deleteShelved deletes an attachment of an instance without a host; false means that another way
// applies.
func (s *Server) deleteShelved(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	call, err := readCall(r)
	if err != nil {
		return false, err
	}
	done, err = s.shelvedAlone(w, r, call, func(ctx context.Context) (api.Attachment, error) {
		return s.Store.Shelf.DeleteAttachment(ctx, call, httpjson.Reference(r))
	})
	if api.CodeOf(err) == api.CodeNotFound && call.Host == nil {
		return false, nil // its host or a migration may know what happened to it
	}
	if err != nil {
		s.auditRefusal(r, err)
	}
	return done, err
}

// forceDelete deletes an attachment of a fenced host; false means that its host must do it.
func (s *Server) forceDelete(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	call, err := readCall(r)
	if err != nil {
		return false, err
	}
	if call.Key != "" {
		if _, _, err := s.Store.Tasks.Get(r.Context(), call.Key); api.CodeOf(err) != api.CodeNotFound {
			return false, err
		}
	}
	a, err := s.Store.Attachments.Get(r.Context(), httpjson.Reference(r), store.Viewer{})
	switch {
	case api.CodeOf(err) == api.CodeNotFound: // perhaps it was deleted by the same request
	case err != nil:
		return false, err
	default:
		host, err := s.Store.Hosts.Get(r.Context(), a.Host)
		if err != nil || host.Status != api.HostFenced {
			return false, err
		}
	}
	// This takes something away from a host that cannot be asked.
	if err := mayFence(r); err != nil {
		s.auditRefusal(r, err)
		return false, err
	}
	if a, err = s.Store.Attachments.ForceDelete(r.Context(), call, httpjson.Reference(r)); err != nil {
		return false, err
	}
	return true, routes.DeleteAttachment.Write(w, http.StatusOK, a)
}

// mayFence refuses operators without the role fence, for requests that need it only in some states.
func mayFence(r *http.Request) error {
	id, ok := mtls.IdentityOf(r.Context())
	if !ok || id.Kind != mtls.KindOperator || id.Role >= httpjson.Fence {
		return nil
	}
	return api.Errorf(api.CodePermissionDenied, "operator %s may not do this: the host of the attachment is fenced, so it asks for the role %s, and the certificate has the role %s", id.Name, httpjson.Fence, id.Role)
}

// forgetVolume removes a volume from the registry; its bytes stay on the host.
func (s *Server) forgetVolume(ctx context.Context, call store.Call, ref string, _ api.VolumeForget) (api.Volume, error) {
	return s.Store.Volumes.Forget(ctx, call, ref)
}
