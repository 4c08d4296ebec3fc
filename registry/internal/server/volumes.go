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

// retype gives a volume another type: at once where its bytes may stay, else by
// a migration at the end of which type and place change together. A repeated
// request goes the way that it went first, and is answered as then.
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
	// Before anything is looked at: it may have been done, whatever stands against
	// it now.
	v, refusal := s.Store.RetypeVolume(r.Context(), call, httpjson.Reference(r), in)
	if refusal == nil {
		return routes.RetypeVolume.Write(w, http.StatusOK, v)
	}
	if !store.IsMove(refusal) {
		return refusal
	}
	plan, err := s.Store.PlanRetype(r.Context(), httpjson.Reference(r), in)
	if err != nil || plan.InPlace {
		return cmp.Or(err, refusal)
	}
	return s.pass(w, r, asked, call.Key, func(ctx context.Context) (relay.Request, error) {
		return s.retypeMove(ctx, plan, in, routes.MigrateVolume.PathOf(plan.Volume.ID))
	})
}

// withdrawnMeanwhile is for a request that was passed on before, and cannot be found
// any more by the time that it is looked for again.
func withdrawnMeanwhile(context.Context) (relay.Request, error) {
	return relay.Request{}, api.Errorf(api.CodeHypervisorUnavailable, "the host did not fetch the request in time; it was withdrawn and nothing was done; ask again")
}

// planRetype says what a retype would do: the host that would move the volume plans that.
func (s *Server) planRetype(r *http.Request, call store.Call, in api.VolumeRetype) (api.RetypePlan, error) {
	plan, err := s.Store.PlanRetype(r.Context(), httpjson.Reference(r), in)
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
	if err == nil && plan.ToPath != "" { // the host has found its pool, if it is in one
		err = s.Store.CheckRetypeDst(r.Context(), plan, req.HostID, move.Dst)
	}
	out.Move = &move
	return out, err
}

// retypeMove is the move at the end of which a volume has its new type, or the plan of it, by the
// path of the call.
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

// deleteAttachment has the attachment's host delete it, which looks whether the
// guest has the disk. Force at a host that is fenced, and so cannot be asked, is
// the operator's word instead, and the registry's own; so is an attachment of an
// instance that no host has.
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

// deleteShelved deletes an attachment of an instance that no host has, or says that
// it is for others to do.
func (s *Server) deleteShelved(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	call, err := readCall(r)
	if err != nil {
		return false, err
	}
	done, err = s.shelvedAlone(w, r, call, func(ctx context.Context) (api.Attachment, error) {
		return s.Store.DeleteShelvedAttachment(ctx, call, httpjson.Reference(r))
	})
	if api.CodeOf(err) == api.CodeNotFound && call.Host == nil {
		return false, nil // what has become of it, its host or a migration may tell
	}
	if err != nil {
		s.auditRefusal(r, err)
	}
	return done, err
}

// forceDelete deletes an attachment whose host is fenced, or says that it is for
// its host to do.
func (s *Server) forceDelete(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	call, err := readCall(r)
	if err != nil {
		return false, err
	}
	if call.Key != "" {
		if _, _, err := s.Store.Task(r.Context(), call.Key); api.CodeOf(err) != api.CodeNotFound {
			return false, err
		}
	}
	a, err := s.Store.Attachment(r.Context(), httpjson.Reference(r), store.Viewer{})
	switch {
	case api.CodeOf(err) == api.CodeNotFound: // perhaps because it was done
	case err != nil:
		return false, err
	default:
		host, err := s.Store.Host(r.Context(), a.Host)
		if err != nil || host.Status != api.HostFenced {
			return false, err
		}
	}
	// It takes something away from a host that cannot be asked.
	if err := mayFence(r); err != nil {
		s.auditRefusal(r, err)
		return false, err
	}
	if a, err = s.Store.ForceDeleteAttachment(r.Context(), call, httpjson.Reference(r)); err != nil {
		return false, err
	}
	return true, routes.DeleteAttachment.Write(w, http.StatusOK, a)
}

// mayFence refuses operators without the role fence, where that depends on what the
// request is about and not on its route.
func mayFence(r *http.Request) error {
	id, ok := mtls.IdentityOf(r.Context())
	if !ok || id.Kind != mtls.KindOperator || id.Role >= httpjson.Fence {
		return nil
	}
	return api.Errorf(api.CodePermissionDenied, "operator %s may not do this: the host of the attachment is fenced, so it asks for the role %s, and the certificate has the role %s", id.Name, httpjson.Fence, id.Role)
}

// forgetVolume takes a volume out of the registry; its bytes are its host's.
func (s *Server) forgetVolume(ctx context.Context, call store.Call, ref string, _ api.VolumeForget) (api.Volume, error) {
	return s.Store.ForgetVolume(ctx, call, ref)
}
