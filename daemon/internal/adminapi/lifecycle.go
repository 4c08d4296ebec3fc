// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// byInstance begins an op of an instance that needs to know nothing but which.
func (s *Server) byInstance(begin func(ctx context.Context, opID, instance string) (api.Instance, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := opID(r)
		if err != nil {
			return err
		}
		inst, err := begin(r.Context(), id, r.PathValue("instance"))
		if err != nil {
			return err
		}
		return s.begun(w, r, id, httpjson.Noun{Name: "instance", Value: inst})
	}
}

// power is byInstance for what only this host does, with an event for the audit trail
// that says who asked for it. Of a task the registry has that already.
func (s *Server) power(what string, details map[string]any, begin func(ctx context.Context, opID, instance string) (api.Instance, error)) handler {
	return s.byInstance(func(ctx context.Context, opID, instance string) (api.Instance, error) {
		if ctx.Value(taskKey{}) != nil {
			return begin(ctx, opID, instance)
		}
		end := s.noteAsked(ctx, api.EventPost{
			At: time.Now().UTC(), What: "instance." + what, Object: "instance/" + instance, OpID: opID, Details: details,
		})
		inst, err := begin(ctx, opID, instance)
		end(inst.ID, err)
		return inst, err
	})
}

// noteAsked keeps an event of a request that is about to be taken, for the audit trail.
// What is done to a guest does not fail for that: a host whose state directory is full
// must be able to stop one. The function that it returns says what became of the request.
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
		// The caller may be gone, and the op goes on all the same.
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

func (s *Server) stopInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceStop
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	return s.power("stop", map[string]any{"force": in.Force}, func(ctx context.Context, opID, instance string) (api.Instance, error) {
		return s.Instances.BeginStop(ctx, opID, instance, in)
	})(w, r)
}

func (s *Server) shelveInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceShelve
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	return s.byInstance(func(ctx context.Context, opID, instance string) (api.Instance, error) {
		return s.Instances.BeginShelve(ctx, opID, instance, in)
	})(w, r)
}

// unshelveInstance brings the instance to this host. To another one the registry
// does: it has to ask that.
func (s *Server) unshelveInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceUnshelve
	r, err := decodeAndKeep(r, &in)
	if err != nil {
		return err
	}
	if in.Host != "" && in.Host != s.HostID && in.Host != s.HostName {
		return s.passOn(w, r, "instance "+r.PathValue("instance")+" is to be on host "+in.Host)
	}
	return s.byInstance(s.Instances.BeginUnshelve)(w, r)
}
