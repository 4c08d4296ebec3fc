// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/volferry/volferry/daemon/internal/audit"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

type instanceAPI struct {
	instances *instance.Manager
	adopter   *instance.Adopter
	moves     *migrate.Manager
	registry  Registry
	uplink    *uplink.Uplink
	audit     *audit.Outbox
	passing   *passing
	ops       *opAPI
	log       *slog.Logger

	hostID, hostName string
}

// power begins an action on an instance. Because only this host knows of the action, power stores
// an audit event.
func (s *instanceAPI) power(what string, begin func(ctx context.Context, opID, instance string) (api.Instance, error)) change[routes.None, api.Instance] {
	return func(ctx context.Context, opID, instance string, _ routes.None) (api.Instance, error) {
		return s.audited(ctx, opID, instance, what, nil, func() (api.Instance, error) { return begin(ctx, opID, instance) })
	}
}

func (s *instanceAPI) stop(ctx context.Context, opID, instance string, in api.InstanceStop) (api.Instance, error) {
	return s.audited(ctx, opID, instance, "stop", map[string]any{"force": in.Force}, func() (api.Instance, error) {
		return s.instances.BeginStop(ctx, opID, instance, in)
	})
}

func (s *instanceAPI) repair(ctx context.Context, opID, instance string, in api.InstanceRepair) (api.Instance, error) {
	return s.audited(ctx, opID, instance, "repair", map[string]any{"source_unwritten": in.SourceUnwritten}, func() (api.Instance, error) {
		return s.instances.BeginRepair(ctx, opID, instance, in)
	})
}

// audited begins an action and stores an event with the caller. For a task it stores none, because
// the registry has the event.
func (s *instanceAPI) audited(ctx context.Context, opID, instance, what string, details map[string]any, begin func() (api.Instance, error)) (api.Instance, error) {
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

// noteAsked stores an audit event before a request is carried out. The caller then calls end with
// the request's result. If the event cannot be stored, the action continues: a host with a full
// state directory must still be able to stop a guest.
func (s *instanceAPI) noteAsked(ctx context.Context, e api.EventPost) (end func(instanceID string, err error)) {
	details := map[string]any{"who": whoAsks(ctx)}
	maps.Copy(details, e.Details)
	e.Details = details
	entry, err := s.audit.Begin(e)
	warn := func(err error) {
		if err != nil {
			s.log.Warn("an event for the audit trail may be lost", "what", e.What, "object", e.Object, "who", details["who"], "err", err)
		}
	}
	warn(err)
	return func(instanceID string, err error) {
		if err == nil {
			warn(entry.Done("instance/"+instanceID, ""))
			return
		}
		// The op continues even if the caller has gone.
		if !s.passing.begunHere(context.WithoutCancel(ctx), e.OpID) {
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

func (s *instanceAPI) unshelve(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceUnshelve
	r, err := decodeAndKeep(r, &in)
	if err != nil {
		return err
	}
	if in.Host != "" && in.Host != s.hostID && in.Host != s.hostName {
		return s.passing.passOn(w, r, "instance "+r.PathValue("instance")+" is to be on host "+in.Host)
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	inst, err := s.instances.BeginUnshelve(r.Context(), id, r.PathValue("instance"))
	if err != nil {
		return err
	}
	return begun(s.ops, routes.UnshelveInstance, w, r, id, inst)
}
