// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// pauseAllLines are this host's part of a move with all guests paused. The registry
// asks for it by tasks. Whoever else does is refused, as an instance is saved and
// restored only for the migration that has locked it, and copied and dropped is only
// what the registry's row of the migration says.
func (s *Server) pauseAllLines() []line {
	const instance, migration = "/v1/instances/{instance}", "/v1/migrations/{migration}"
	return []line{
		get(instance+"/memory", "say what it takes to save an instance", s.memory).out("paused_instance", api.PausedInstance{}),
		get(migration+"/saved", "say what was done here for a move with all guests paused, whether the registry knows it or not", s.saved).
			out("saved_instances", []api.SavedInstance{}),
		post(instance+"/check-save", "say whether an instance can be suspended and saved for the migration that has locked it; nothing is changed", s.checkSave).
			in(api.InstanceSuspend{}).out("paused_instance", api.PausedInstance{}),
		post(instance+"/suspend", "have an instance stand still, before all guests of its volume are saved", s.suspendInstance).
			in(api.InstanceSuspend{}).out("op", api.Op{}).out("instance", api.Instance{}),
		post(instance+"/save", "save an instance, RAM and all, for the migration that has locked it", s.saveInstance).
			in(api.InstanceSave{}).out("op", api.Op{}).out("instance", api.Instance{}),
		post(instance+"/restore", "restore an instance that was saved for a migration; it stands still until it is resumed", s.restoreInstance).
			in(api.InstanceRestore{}).out("op", api.Op{}).out("instance", api.Instance{}),
		post(instance+"/resume", "let an instance go on that was suspended for a migration", s.resumeInstance).
			in(api.InstanceResume{}).out("op", api.Op{}).out("instance", api.Instance{}),
		post(migration+"/check-copy", "say whether a volume can be copied while its guests are saved; nothing is changed", s.checkCopy).
			in(api.CopySaved{}).out("location", api.Location{}),
		post(migration+"/copy-saved", "copy a volume whose guests are all saved", s.copySaved).
			in(api.CopySaved{}).out("op", api.Op{}).out("migration", api.Migration{}),
		post(migration+"/drop-saved", "remove one end of the copy of a volume whose guests were saved", s.dropSaved).
			in(api.DropSaved{}).out("op", api.Op{}),
		post("/v1/volumes/{volume}/migrate:estimate", "say what a move with all guests paused would cost", s.proxied).
			in(api.MigrationTarget{}).out("estimate", api.PauseEstimate{}).answeredBy(byRegistry),
	}
}

func (s *Server) memory(w http.ResponseWriter, r *http.Request) error {
	is, err := s.Instances.Memory(r.Context(), r.PathValue("instance"))
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusOK, "paused_instance", is)
}

func (s *Server) saved(w http.ResponseWriter, r *http.Request) error {
	is, err := s.Instances.Saved(r.Context(), r.PathValue("migration"))
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusOK, "saved_instances", is)
}

func (s *Server) checkSave(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceSuspend
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	if err := s.Instances.CheckSave(r.Context(), r.PathValue("instance"), in); err != nil {
		return err
	}
	return s.memory(w, r)
}

func (s *Server) suspendInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceSuspend
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	return s.byInstance(func(ctx context.Context, opID, instance string) (api.Instance, error) {
		return s.Instances.BeginSuspend(ctx, opID, instance, in)
	})(w, r)
}

func (s *Server) resumeInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceResume
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	return s.byInstance(func(ctx context.Context, opID, instance string) (api.Instance, error) {
		return s.Instances.BeginResume(ctx, opID, instance, in)
	})(w, r)
}

func (s *Server) checkCopy(w http.ResponseWriter, r *http.Request) error {
	var in api.CopySaved
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	at, err := s.Migrations.CheckCopySaved(r.Context(), in)
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusOK, "location", at)
}

func (s *Server) saveInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceSave
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	return s.byInstance(func(ctx context.Context, opID, instance string) (api.Instance, error) {
		return s.Instances.BeginSave(ctx, opID, instance, in)
	})(w, r)
}

func (s *Server) restoreInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceRestore
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	return s.byInstance(func(ctx context.Context, opID, instance string) (api.Instance, error) {
		return s.Instances.BeginRestore(ctx, opID, instance, in)
	})(w, r)
}

func (s *Server) copySaved(w http.ResponseWriter, r *http.Request) error {
	var in api.CopySaved
	id, err := s.ofMigration(r, &in, &in.MigrationID)
	if err != nil {
		return err
	}
	m, err := s.Migrations.CopySaved(r.Context(), id, in)
	if err != nil {
		return err
	}
	return s.accepted(w, r, m, id)
}

func (s *Server) dropSaved(w http.ResponseWriter, r *http.Request) error {
	var in api.DropSaved
	id, err := s.ofMigration(r, &in, &in.MigrationID)
	if err != nil {
		return err
	}
	if err := s.Migrations.DropSaved(r.Context(), id, in); err != nil {
		return err
	}
	return s.begun(w, r, id)
}

// ofMigration reads a body that names the migration of the path once more, and
// returns the id of the op that is asked for.
func (s *Server) ofMigration(r *http.Request, in any, named *string) (string, error) {
	if err := httpjson.Decode(r, in); err != nil {
		return "", err
	}
	if path := r.PathValue("migration"); *named != path {
		return "", api.Errorf(api.CodeInvalidArgument, "migration_id is %.60q and the path names %.60q", *named, path)
	}
	return opID(r)
}

// led has the registry answer for a migration that it leads itself, which this host
// knows a part of at the most. What is not known here may be such a one as long as the
// registry cannot be asked.
func (s *Server) led(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ref := r.PathValue("migration")
		switch leads, err := s.registryLeads(r.Context(), ref); {
		case err != nil:
			return err
		case leads:
			return s.passOn(w, r, "migration "+ref+" is the registry's, with all guests paused")
		}
		return next(w, r)
	}
}

func (s *Server) registryLeads(ctx context.Context, ref string) (bool, error) {
	m, err := s.Migrations.Resolve(ctx, ref)
	if err != nil {
		m, err = s.Registry.Migration(ctx, ref)
	}
	if err != nil && away(err) {
		return false, err
	}
	return err == nil && m.Method == migrate.MethodSave, nil
}
