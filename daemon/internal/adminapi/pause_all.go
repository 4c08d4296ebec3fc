// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func (s *Server) memory(r *http.Request, _ routes.None) (api.PausedInstance, error) {
	return s.Instances.Memory(r.Context(), r.PathValue("instance"))
}

func (s *Server) saved(r *http.Request, _ routes.None) ([]api.SavedInstance, error) {
	return s.Instances.Saved(r.Context(), r.PathValue("migration"))
}

func (s *Server) checkSave(r *http.Request, in api.InstanceSuspend) (api.PausedInstance, error) {
	if err := s.Instances.CheckSave(r.Context(), r.PathValue("instance"), in); err != nil {
		return api.PausedInstance{}, err
	}
	return s.memory(r, routes.None{})
}

func (s *Server) copySaved(ctx context.Context, opID, migration string, in api.CopySaved) (api.Migration, error) {
	if err := checkNamed(in.MigrationID, migration); err != nil {
		return api.Migration{}, err
	}
	if err := s.Migrations.Parts.CopySaved(ctx, opID, in); err != nil {
		return api.Migration{}, err
	}
	return s.Migrations.Get(ctx, in.MigrationID)
}

func (s *Server) dropSaved(ctx context.Context, opID, migration string, in api.DropSaved) (api.Op, error) {
	if err := checkNamed(in.MigrationID, migration); err != nil {
		return api.Op{}, err
	}
	if err := s.Migrations.Parts.DropSaved(ctx, opID, in); err != nil {
		return api.Op{}, err
	}
	return s.ops().requested(ctx, opID)
}

func checkNamed(named, migration string) error {
	if named != migration {
		return api.Errorf(api.CodeInvalidArgument, "migration_id is %.60q and the path names %.60q", named, migration)
	}
	return nil
}
