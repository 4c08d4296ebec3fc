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
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

type retypeAPI struct {
	retypes *store.Retypes
	forward *forwarder
	targets *targets
	relay   *relay.Relay
}

// retype changes the type of a volume: at once if its bytes may stay, else by a migration that
// changes type and location together at its end. A repeated request gets the same answer.
func (s *retypeAPI) retype(w http.ResponseWriter, r *http.Request) error {
	call, in, err := readChange[api.VolumeRetype](r)
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	asked := asAsked(r, "", body)
	if before, err := s.forward.askedBefore(r.Context(), call.Key); before.Path != "" || err != nil {
		if err != nil {
			return err
		}
		return s.forward.pass(w, r, asked, call.Key, withdrawnMeanwhile)
	}
	// Try this first: the retype may be done already, whatever would prevent it now.
	v, refusal := s.retypes.Retype(r.Context(), call, httpjson.Reference(r), in)
	if refusal == nil {
		return routes.RetypeVolume.Write(w, http.StatusOK, v)
	}
	if !store.IsMove(refusal) {
		return refusal
	}
	plan, err := s.retypes.Plan(r.Context(), httpjson.Reference(r), in)
	if err != nil || plan.InPlace {
		return cmp.Or(err, refusal)
	}
	return s.forward.pass(w, r, asked, call.Key, func(ctx context.Context) (relay.Request, error) {
		return s.move(ctx, plan, in, routes.MigrateVolume.PathOf(plan.Volume.ID))
	})
}

// withdrawnMeanwhile answers a request that was passed on before, and was withdrawn since.
func withdrawnMeanwhile(context.Context) (relay.Request, error) {
	return relay.Request{}, api.Errorf(api.CodeHypervisorUnavailable, "the host did not fetch the request in time; it was withdrawn and nothing was done; ask again")
}

// plan plans a retype; the host that would move the volume plans the move.
func (s *retypeAPI) plan(r *http.Request, call store.Call, in api.VolumeRetype) (api.RetypePlan, error) {
	plan, err := s.retypes.Plan(r.Context(), httpjson.Reference(r), in)
	if err != nil {
		return api.RetypePlan{}, err
	}
	v := plan.Volume
	out := api.RetypePlan{VolumeID: v.ID, VolumeName: v.Name, FromType: v.Type, ToType: plan.Type.Name, Location: v.Location}
	if plan.InPlace {
		return out, nil
	}
	req, err := s.move(r.Context(), plan, in, routes.PlanMigration.PathOf(v.ID))
	if err != nil {
		return out, err
	}
	req.Who, req.Change, req.Key = call.Who, true, uuid.NewString()
	move, err := answerOf[api.MigrationPlan](r.Context(), s.relay, req, routes.PlanMigration.Noun)
	if err == nil && plan.ToPath != "" { // the host has found its pool, if any
		err = s.retypes.CheckDst(r.Context(), plan, req.HostID, move.Dst)
	}
	out.Move = &move
	return out, err
}

// move returns the call that moves a volume with its new type or, by path, plans the move.
func (s *retypeAPI) move(ctx context.Context, plan store.RetypePlan, in api.VolumeRetype, path string) (req relay.Request, err error) {
	host, err := s.targets.placement.Mover(ctx, plan.Volume, plan.ToPool)
	if err != nil {
		return req, err
	}
	req = relay.Request{HostID: host.ID, HostName: host.Name, Method: http.MethodPost, Path: path}
	return req.With(api.MigrationTarget{
		ToPool: plan.ToPool, ToPath: plan.ToPath, ToFormat: in.ToFormat, ToType: plan.Type.ID, Method: in.Method, CopyOptions: in.CopyOptions(), DeleteSource: in.DeleteSource, Overwrite: in.Overwrite, Checkpoints: in.Checkpoints,
	})
}
