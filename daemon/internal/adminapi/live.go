// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// liveRoutes are this host's part of a move while all guests write, for the registry's tasks. They
// do nothing for other callers: before each step, the host asks the registry whether the migration
// needs the step.
func (s *Server) liveRoutes() []httpjson.Route {
	return []httpjson.Route{
		answer(routes.CheckLive, s.checkLive),
		do(routes.MakeLive, http.StatusAccepted, s.makeLive),
		live(s, routes.TrackLive, func(in api.LiveTrack) api.LiveVolume { return in.LiveVolume }),
		live(s, routes.SwapLive, func(in api.LiveSwap) api.LiveVolume { return in.LiveVolume }),
		live(s, routes.CopyRound, func(in api.LiveRound) api.LiveVolume { return in.LiveVolume }),
		live(s, routes.EndRound, func(in api.LiveEndRound) api.LiveVolume { return in.LiveVolume }),
		live(s, routes.LastRead, func(in api.LiveLastRead) api.LiveVolume { return in.LiveVolume }),
		live(s, routes.LastCopy, func(in api.LiveLastCopy) api.LiveVolume { return in.LiveVolume }),
		live(s, routes.UntrackLive, func(in api.LiveUntrack) api.LiveVolume { return in.LiveVolume }),
	}
}

func live[In any](s *Server, route routes.Route[In, api.Op], volume func(In) api.LiveVolume) httpjson.Route {
	return do(route, http.StatusAccepted, func(ctx context.Context, opID, migration string, in In) (api.Op, error) {
		if err := checkNamed(volume(in).MigrationID, migration); err != nil {
			return api.Op{}, err
		}
		if err := s.Migrations.Parts.Live(ctx, opID, in); err != nil {
			return api.Op{}, err
		}
		return s.ops().requested(ctx, opID)
	})
}

func (s *Server) checkLive(r *http.Request, in api.LiveCheck) (api.LiveHost, error) {
	ctx := r.Context()
	host := api.LiveHost{Instances: []api.PausedInstance{}}
	if err := checkNamed(in.MigrationID, r.PathValue("migration")); err != nil {
		return host, err
	}
	for _, id := range in.Instances {
		if err := s.Instances.CheckSave(ctx, id, api.InstanceSuspend{MigrationID: in.MigrationID, VolumeID: in.VolumeID}); err != nil {
			return host, err
		}
		of, err := s.Instances.Memory(ctx, id)
		if err != nil {
			return host, err
		}
		host.Instances = append(host.Instances, of)
	}
	return host, s.Migrations.Preflight.CheckLive(ctx, in)
}

func (s *Server) makeLive(ctx context.Context, opID, migration string, in api.LiveMake) (api.Op, error) {
	if err := checkNamed(in.MigrationID, migration); err != nil {
		return api.Op{}, err
	}
	if err := s.Migrations.Parts.MakeLive(ctx, opID, in); err != nil {
		return api.Op{}, err
	}
	return s.ops().requested(ctx, opID)
}
