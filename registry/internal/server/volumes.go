// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
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
	ref := reference(r)
	if moved, err := s.retypeTask(r, call.Key, in); moved != nil || err != nil {
		if err != nil {
			return err
		}
		return s.pass(w, r, *moved, nil)
	}
	// Before anything is looked at: it may have been done, whatever stands against
	// it now.
	v, refusal := s.Store.RetypeVolume(r.Context(), call, ref, in)
	if refusal == nil {
		return httpjson.Write(w, http.StatusOK, "volume", v)
	}
	if _, moves := api.AsError(refusal).Details["to_pool"]; !moves {
		return refusal
	}
	plan, err := s.Store.PlanRetype(r.Context(), ref, in)
	if err != nil || plan.InPlace {
		return cmp.Or(err, refusal)
	}
	req, err := retypeRequest(ref, call.Key, api.MigrationTarget{ToPool: plan.ToPool, ToType: in.Type})
	if err != nil {
		return err
	}
	return s.pass(w, r, req, func(ctx context.Context) (api.Host, error) { return s.where().Volume(ctx, plan.Volume) })
}

// retypeTask returns the call that a retype was made before, nil if none was.
// Where it went then stands: the pool with the most room may be another now.
func (s *Server) retypeTask(r *http.Request, key string, in api.VolumeRetype) (*relay.Request, error) {
	if key == "" {
		return nil, nil //nolint:nilnil // there was none
	}
	task, _, err := s.Store.Task(r.Context(), key)
	if api.CodeOf(err) == api.CodeNotFound || err == nil && task.State == api.TaskWithdrawn {
		return nil, nil //nolint:nilnil // there was none
	}
	if err != nil {
		return nil, err
	}
	var target api.MigrationTarget
	if err := json.Unmarshal(task.Body, &target); err != nil {
		target = api.MigrationTarget{}
	}
	if target.ToType != in.Type {
		return nil, api.Errorf(api.CodeIdempotencyMismatch, "the op id %s was used for another request; use a new one", key)
	}
	req, err := retypeRequest(reference(r), key, target)
	return &req, err
}

func retypeRequest(ref, key string, target api.MigrationTarget) (relay.Request, error) {
	body, err := json.Marshal(target)
	if err != nil {
		return relay.Request{}, fmt.Errorf("encode request: %w", err)
	}
	return relay.Request{Method: http.MethodPost, Path: "/v1/volumes/" + url.PathEscape(ref) + "/migrate", Body: body, Change: true, Key: key}, nil
}

// deleteAttachment has the attachment's host delete it, which looks whether the
// guest has the disk. Force at a host that is fenced, and so cannot be asked, is
// the operator's word instead, and the registry's own; so is an attachment of an
// instance that no host has.
func (s *Server) deleteAttachment(w http.ResponseWriter, r *http.Request) error {
	query, err := httpjson.Query(r, "force")
	if err != nil {
		return err
	}
	force, err := boolean(query, "force")
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
	return relayed(s, ofAttachment[nothing](s), "force")(w, r)
}

// deleteShelved deletes an attachment of an instance that no host has, or says that
// it is for others to do.
func (s *Server) deleteShelved(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	call, err := callOf(r)
	if err != nil {
		return false, err
	}
	done, err = s.shelvedAlone(w, r, call, func(ctx context.Context) (api.Attachment, error) {
		return s.Store.DeleteShelvedAttachment(ctx, call, reference(r))
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
	call, err := callOf(r)
	if err != nil {
		return false, err
	}
	if call.Key != "" {
		if _, _, err := s.Store.Task(r.Context(), call.Key); api.CodeOf(err) != api.CodeNotFound {
			return false, err
		}
	}
	a, err := s.Store.Attachment(r.Context(), reference(r), store.Viewer{})
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
	if a, err = s.Store.ForceDeleteAttachment(r.Context(), call, reference(r)); err != nil {
		return false, err
	}
	return true, httpjson.Write(w, http.StatusOK, "attachment", a)
}

// forgetVolume takes a volume out of the registry; its bytes are its host's.
func (s *Server) forgetVolume(ctx context.Context, call store.Call, ref string, _ api.VolumeForget) (api.Volume, error) {
	return s.Store.ForgetVolume(ctx, call, ref)
}
