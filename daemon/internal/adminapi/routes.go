// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// Routes returns the daemon's routes with their handlers.
func (s *Server) Routes() []httpjson.Route {
	served := slices.Concat(
		s.aboutRoutes(), s.volumeRoutes(), s.instanceRoutes(), s.migrationRoutes(), s.pauseAllRoutes(), s.liveRoutes(),
		s.rememberedRoutes(), s.passedOnRoutes(),
	)
	parts := parts()
	for i, r := range served {
		if r.Access != httpjson.Read && !parts[r.Method+" "+r.Path].ByRegistry() {
			served[i].Handler = s.admitted(r.Handler)
		}
		served[i].Handler = s.addressed(served[i].Handler)
	}
	return served
}

func parts() map[string]routes.Part {
	parts := map[string]routes.Part{}
	for _, d := range routes.All() {
		if d.Daemon != nil {
			parts[d.String()] = d.Daemon.Part
		}
	}
	return parts
}

// admitted refuses calls that would begin work on a fenced host. If a fence halts an op, the
// caller who waits for it gets the reason.
func (s *Server) admitted(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.Uplink.Admit(); err != nil {
			return err
		}
		err := next(w, r)
		if errors.Is(err, op.ErrStopped) {
			return cmp.Or(s.Uplink.Admit(), err)
		}
		return err
	}
}

func (s *Server) aboutRoutes() []httpjson.Route {
	ops := s.ops()
	return []httpjson.Route{
		answer(routes.ShowStatus, s.status().show),
		answer(routes.FixDoctor, func(r *http.Request, _ routes.None) ([]api.Fix, error) { return s.FixDoctor(r.Context()), nil }),
		answer(routes.RunDoctor, func(r *http.Request, _ routes.None) ([]api.Check, error) { return s.Doctor(r.Context()), nil }),
		answer(routes.ShowDaemonVersion, s.version),
		routes.ShowOpenAPI.ServedByDaemon(s.openAPI),
		answer(routes.ListOps, ops.list),
		answer(routes.ShowOp, ops.show),
		routes.FollowOp.ServedByDaemon(ops.watch),
	}
}

func (s *Server) volumeRoutes() []httpjson.Route {
	return []httpjson.Route{
		do(routes.CreateVolume, http.StatusCreated, func(ctx context.Context, opID, _ string, in api.VolumeCreate) (api.Volume, error) {
			return s.Volumes.Create(ctx, opID, in)
		}),
		do(routes.AdoptVolume, http.StatusCreated, func(ctx context.Context, opID, _ string, in api.VolumeAdopt) (api.Volume, error) {
			return s.Volumes.Adopt(ctx, opID, in)
		}),
		do(routes.ResizeVolume, http.StatusOK, s.Volumes.Resize),
		routes.DeleteVolume.ServedByDaemon(s.deleteVolume),
		routes.ForgetVolume.ServedByDaemon(s.forgetVolume),
		answer(routes.ShowWhich, s.which),
		answer(routes.ShowVolumeImage, func(r *http.Request, _ routes.None) (api.VolumeImage, error) {
			return s.Volumes.Image(r.Context(), r.PathValue("volume"))
		}),
		routes.MigrateVolume.ServedByDaemon(s.migrations().migrateVolume),
		answer(routes.PlanMigration, func(r *http.Request, in api.MigrationTarget) (api.MigrationPlan, error) {
			return s.Migrations.Plan(r.Context(), httpjson.Reference(r), in)
		}),
		atInstance(s, routes.AttachVolume, func(in api.VolumeAttach) string { return in.Instance }, s.Attachments.BeginAttach),
		atInstance(s, routes.DetachVolume, func(in api.VolumeDetach) string { return in.Instance }, s.Attachments.BeginDetach),
		routes.DeleteAttachment.ServedByDaemon(s.deleteAttachment),
	}
}

func (s *Server) instanceRoutes() []httpjson.Route {
	i, ops := s.instances(), s.ops()
	return []httpjson.Route{
		routes.AdoptInstance.ServedByDaemon(i.adopt),
		routes.ForgetInstance.ServedByDaemon(i.forget),
		routes.StartInstance.ServedByDaemon(i.start),
		begin(ops, routes.StopInstance, i.stop),
		begin(ops, routes.RebootInstance, i.power("reboot", s.Instances.BeginReboot)),
		begin(ops, routes.PauseInstance, i.power("pause", s.Instances.BeginPause)),
		begin(ops, routes.UnpauseInstance, i.power("unpause", s.Instances.BeginUnpause)),
		begin(ops, routes.RepairInstance, i.repair),
		begin(ops, routes.ShelveInstance, s.Instances.BeginShelve),
		routes.UnshelveInstance.ServedByDaemon(i.unshelve),
	}
}

func (s *Server) migrationRoutes() []httpjson.Route {
	migrations, m := s.migrations(), s.Migrations
	return []httpjson.Route{
		routes.StartMigration.ServedByDaemon(migrations.startMigration),
		onMigration(migrations, routes.CopyByAttachment, migrations.byAttachment, m.Copy),
		onMigration(migrations, routes.CompleteByAttachment, migrations.byAttachments, m.Complete),
		onMigration(migrations, routes.CancelByAttachment, migrations.byAttachment, m.Cancel),

		routes.ListMigrations.ServedByDaemon(migrations.list),
		answer(routes.ListReleased, func(r *http.Request, _ routes.None) ([]api.ReleasedSource, error) {
			return m.Released.List(r.Context(), r.URL.Query().Get("volume"))
		}),
		routes.DeleteSource.ServedByDaemon(migrations.deleteSource),
		migrations.unlessRegistryLeads(answer(routes.ShowMigration, migrations.show)),
		answer(routes.UpdateMigration, migrations.update),
		migrations.unlessRegistryLeads(routes.FollowMigration.ServedByDaemon(migrations.watch)),
		onMigration(migrations, routes.CopyMigration, migrations.byMigration, m.Copy),
		migrations.unlessRegistryLeads(onMigration(migrations, routes.CompleteMigration.WithoutBody(), migrations.byMigration, m.Complete)),
		migrations.unlessRegistryLeads(onMigration(migrations, routes.CancelMigration.WithoutBody(), migrations.byMigration, m.Cancel)),
	}
}

// pauseAllRoutes are this host's part of a move with all guests paused, for the registry's tasks.
// They do nothing for other callers. An instance is saved and restored only for the migration that
// locked it. An image is copied or dropped only if the registry's migration permits that.
func (s *Server) pauseAllRoutes() []httpjson.Route {
	ops := s.ops()
	return []httpjson.Route{
		answer(routes.ShowMemory, s.memory),
		answer(routes.CheckSave, s.checkSave),
		begin(ops, routes.SuspendInstance, s.Instances.BeginSuspend),
		begin(ops, routes.SaveInstance, s.Instances.BeginSave),
		begin(ops, routes.RestoreInstance, s.Instances.BeginRestore),
		begin(ops, routes.ResumeInstance, s.Instances.BeginResume),
		answer(routes.ListSaved, s.saved),
		answer(routes.CheckCopy, func(r *http.Request, in api.CopySaved) (api.Location, error) {
			return s.Migrations.Parts.CheckCopySaved(r.Context(), in)
		}),
		begin(ops, routes.CopySaved, s.copySaved),
		do(routes.DropSaved, http.StatusAccepted, s.dropSaved),
	}
}

func (s *Server) rememberedRoutes() []httpjson.Route {
	passing := s.passing()
	return []httpjson.Route{
		remembered(s, routes.ListHosts, all(hosts)),
		remembered(s, routes.ShowHost, one(hosts, hostCalled)),
		passing.fresh(remembered(s, routes.ListPools, all(pools))),
		passing.fresh(remembered(s, routes.ShowPool, cachedPool)),
		remembered(s, routes.ListTypes, all(types)),
		remembered(s, routes.ShowType, one(types, typeCalled)),
		remembered(s, routes.ListPolicies, all(policies)),
		remembered(s, routes.ShowPolicy, one(policies, policyCalled)),
		remembered(s, routes.ListVolumes, all(volumes)),
		remembered(s, routes.ShowVolume, one(volumes, volumeCalled)),
		remembered(s, routes.ListAttachments, cachedAttachments),
		remembered(s, routes.ShowAttachment, one(attachments, attachmentCalled)),
		passing.fresh(remembered(s, routes.ListInstances, all(instances))),
		passing.fresh(remembered(s, routes.ShowInstance, one(instances, instanceCalled))),
	}
}

// passedOnRoutes are the calls that only the registry answers. The registry checks this host's
// rights.
func (s *Server) passedOnRoutes() []httpjson.Route {
	var served []httpjson.Route
	for _, d := range routes.All() {
		if d.Daemon != nil && d.Daemon.Part == routes.PassesOn {
			served = append(served, d.ServedByDaemon(s.passing().proxied))
		}
	}
	return served
}

// Handler serves the API to authorized callers. It logs every caller of a change, authorized or
// not.
func (s *Server) Handler(authorize httpjson.Authorizer) http.Handler {
	logged := func(r *http.Request, route httpjson.Route) error {
		err := authorize(r, route)
		if route.Access != httpjson.Read {
			s.logCaller(r, err)
		}
		return err
	}
	return httpjson.NewHandler(httpjson.Config{Routes: s.Routes(), Elsewhere: s.elsewhere(), Authorize: logged, Program: program + " of host " + s.HostName, Log: s.Log})
}

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	return httpjson.WriteOpenAPI(w, "Volferry daemon", s.Version, s.Routes())
}

func (s *Server) version(*http.Request, routes.None) (map[string]string, error) {
	return map[string]string{"program": program, "version": s.Version}, nil
}
