// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// power begins an action on an instance that only this host records, with an audit event.
func (s *Server) power(what string, begin func(ctx context.Context, opID, instance string) (api.Instance, error)) change[routes.None, api.Instance] {
	return func(ctx context.Context, opID, instance string, _ routes.None) (api.Instance, error) {
		return s.audited(ctx, opID, instance, what, nil, func() (api.Instance, error) { return begin(ctx, opID, instance) })
	}
}

func (s *Server) stopInstance(ctx context.Context, opID, instance string, in api.InstanceStop) (api.Instance, error) {
	return s.audited(ctx, opID, instance, "stop", map[string]any{"force": in.Force}, func() (api.Instance, error) {
		return s.Instances.BeginStop(ctx, opID, instance, in)
	})
}

func (s *Server) repairInstance(ctx context.Context, opID, instance string, in api.InstanceRepair) (api.Instance, error) {
	return s.audited(ctx, opID, instance, "repair", map[string]any{"source_unwritten": in.SourceUnwritten}, func() (api.Instance, error) {
		return s.Instances.BeginRepair(ctx, opID, instance, in)
	})
}

// audited begins an action and stores an event with the caller. For a task the registry has that
// event.
func (s *Server) audited(ctx context.Context, opID, instance, what string, details map[string]any, begin func() (api.Instance, error)) (api.Instance, error) {
	if ctx.Value(taskKey{}) != nil {
		return begin()
	}
	end := s.noteAsked(ctx, api.EventPost{
		At: time.Now().UTC(), What: "instance." + what, Object: "instance/" + instance, OpID: opID, Details: details,
	})
	inst, err := begin()
	end(inst.ID, err)
	return inst, err
}

// noteAsked stores an audit event before a request is carried out; then call end with the request's
// result. The action continues even if that fails: a host with a full state directory must still be
// able to stop a guest.
func (s *Server) noteAsked(ctx context.Context, e api.EventPost) (end func(instanceID string, err error)) {
	details := map[string]any{"who": whoAsks(ctx)}
	maps.Copy(details, e.Details)
	e.Details = details
	entry, err := s.Audit.Begin(e)
	warn := func(err error) {
		if err != nil {
			s.Log.Warn("an event for the audit trail may be lost", "what", e.What, "object", e.Object, "who", details["who"], "err", err)
		}
	}
	warn(err)
	return func(instanceID string, err error) {
		if err == nil {
			warn(entry.Done("instance/"+instanceID, ""))
			return
		}
		// The op continues even if the caller has gone.
		if !s.begunHere(context.WithoutCancel(ctx), e.OpID) {
			warn(entry.Drop())
			return
		}
		result := ""
		if _, ok := errors.AsType[*api.Error](err); ok {
			result = string(api.CodeOf(err))
		}
		warn(entry.Done(e.Object, result))
	}
}

// unshelveInstance brings the instance to this host. For another host it passes the call on to the
// registry.
func (s *Server) unshelveInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceUnshelve
	r, err := decodeAndKeep(r, &in)
	if err != nil {
		return err
	}
	if in.Host != "" && in.Host != s.HostID && in.Host != s.HostName {
		return s.passOn(w, r, "instance "+r.PathValue("instance")+" is to be on host "+in.Host)
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	inst, err := s.Instances.BeginUnshelve(r.Context(), id, r.PathValue("instance"))
	if err != nil {
		return err
	}
	return begun(s, routes.UnshelveInstance, w, r, id, inst)
}
