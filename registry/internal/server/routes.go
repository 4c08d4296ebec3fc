// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// Routes returns the registry's routes with their handlers.
func (s *Server) Routes() []httpjson.Route {
	return slices.Concat(
		s.aboutRoutes(), s.hostRoutes(), s.poolRoutes(), s.typeRoutes(), s.volumeRoutes(), s.attachmentRoutes(),
		s.instanceRoutes(), s.migrationRoutes(),
	)
}

func (s *Server) aboutRoutes() []httpjson.Route {
	return []httpjson.Route{
		read(routes.ShowStatus, s.status.show),
		routes.ShowRegistryVersion.ServedByRegistry(s.version),
		routes.ShowOpenAPI.ServedByRegistry(s.openAPI),

		relayed(s.forward, routes.ListOps, s.targets.opsOfHost),
		relayed(s.forward, routes.ShowOp, s.targets.ofOp),
		routes.FollowOp.ServedByRegistry(s.ops.watch),

		routes.ListEvents.ServedByRegistry(s.events.list),
		create(routes.PostEvent, s.Store.Trail.Post),
	}
}

func (s *Server) hostRoutes() []httpjson.Route {
	return []httpjson.Route{
		list(routes.ListHosts, inMemory(s.hosts.list, func(h *api.Host) string { return h.ID })),
		show(routes.ShowHost, s.hosts.show),
		write(routes.ReportHost, http.StatusOK, s.hosts.report),
		drastic(s.refusals, routes.FenceHost, s.hosts.fence),
		routes.ForgetHost.ServedByRegistry(s.hosts.forget),
		write(routes.RejoinHost, http.StatusOK, s.hosts.rejoin),
		routes.FetchTasks.ServedByRegistry(s.hosts.tasks),
		write(routes.AnswerTask, http.StatusOK, s.hosts.answer),
	}
}

func (s *Server) poolRoutes() []httpjson.Route {
	return []httpjson.Route{
		list(routes.ListPools, inMemory(s.hosts.listPools, func(p *api.Pool) string { return p.Host + "/" + p.Name })),
		read(routes.ShowPool, s.hosts.showPool),
		write(routes.DrainPool, http.StatusCreated, s.drains.start),

		list(routes.ListDrains, s.drains.each),
		show(routes.ShowDrain, shown(s.drains.show)),
		routes.FollowDrain.ServedByRegistry(s.drains.watch),
		change(routes.PauseDrain, s.drains.set(api.DrainPaused)),
		change(routes.ResumeDrain, s.drains.set(api.DrainRunning)),
		change(routes.StopDrain, s.drains.set(api.DrainStopped)),
	}
}

func (s *Server) typeRoutes() []httpjson.Route {
	db := s.Store
	return []httpjson.Route{
		list(routes.ListTypes, inMemory(alike(db.Types.All), func(t *api.VolumeType) string { return t.ID })),
		create(routes.CreateType, db.Types.Create),
		show(routes.ShowType, shown(db.Types.Get)),
		change(routes.UpdateType, db.Types.Update),
		remove(routes.DeleteType, db.Types.Delete),

		list(routes.ListPolicies, inMemory(alike(db.Policies.All), func(p *api.Policy) string { return p.Name })),
		change(routes.SetPolicy, db.Policies.Set),
	}
}

func (s *Server) volumeRoutes() []httpjson.Route {
	db := s.Store
	return []httpjson.Route{
		list(routes.ListVolumes, seen(db.Volumes.Each)),
		show(routes.ShowVolume, db.Volumes.Get),
		relayed(s.forward, routes.CreateVolume, s.targets.toCreateVolume),
		relayed(s.forward, routes.AdoptVolume, s.targets.toAdoptVolume),
		change(routes.UpdateVolume, db.Volumes.Update),
		relayed(s.forward, routes.DeleteVolume, s.targets.toDelete),
		change(routes.ForgetVolume, s.volumes.forget),
		relayed(s.forward, routes.ResizeVolume, s.targets.toResize),
		write(routes.SetVolumeSize, http.StatusOK, s.volumes.setSize),
		routes.RetypeVolume.ServedByRegistry(s.retypes.retype),
		write(routes.PlanRetype, http.StatusOK, s.retypes.plan),
		shelvedOr(s.forward, routes.AttachVolume, db.Shelf.Attach, s.targets.toAttach),
		shelvedOr(s.forward, routes.DetachVolume, db.Shelf.Detach, s.targets.toDetach),
		routes.MigrateVolume.ServedByRegistry(s.volumes.migrate),
		relayed(s.forward, routes.PlanMigration, s.targets.toMigrate),
		write(routes.EstimateMigration, http.StatusOK, s.estimates.estimate),
		s.volumes.which(relayed(s.forward, routes.ShowWhich, ofVolume[routes.None](s.targets))),

		create(routes.RegisterVolume, db.Volumes.Register),
		change(routes.TransitionVolume, db.Volumes.Transition),
		change(routes.GrowVolume, db.Volumes.Grow),
		change(routes.IdentifyVolume, db.Volumes.Identify),
		change(routes.BeginResize, db.Volumes.BeginResize),
		change(routes.EndResize, db.Volumes.EndResize),
	}
}

func (s *Server) attachmentRoutes() []httpjson.Route {
	db := s.Store
	return []httpjson.Route{
		list(routes.ListAttachments, s.attachments.each),
		show(routes.ShowAttachment, db.Attachments.Get),
		routes.DeleteAttachment.ServedByRegistry(s.attachments.remove),

		relayed(s.forward, routes.StartMigration, s.targets.toStart),
		relayed(s.forward, routes.CopyByAttachment, ofAttachment[routes.None](s.targets)),
		relayed(s.forward, routes.CompleteByAttachment, ofAttachment[api.MigrationComplete](s.targets)),
		relayed(s.forward, routes.CancelByAttachment, ofAttachment[routes.None](s.targets)),

		create(routes.ReserveAttachment, db.Attachments.Reserve),
		change(routes.TransitionAttachment, db.Attachments.Transition),
		change(routes.ReleaseAttachment, db.Attachments.Release),
	}
}

func (s *Server) instanceRoutes() []httpjson.Route {
	db := s.Store
	return []httpjson.Route{
		list(routes.ListInstances, seen(db.Instances.Each)),
		show(routes.ShowInstance, db.Instances.Get),
		relayed(s.forward, routes.AdoptInstance, s.targets.toAdoptInstance),
		routes.ForgetInstance.ServedByRegistry(s.instances.forget),
		change(routes.LockInstance, db.Instances.Lock),
		change(routes.UnlockInstance, s.instances.unlock),
		relayed(s.forward, routes.StartInstance, toPower[routes.None](s.targets, "start")),
		relayed(s.forward, routes.StopInstance, toPower[api.InstanceStop](s.targets, "stop")),
		relayed(s.forward, routes.RebootInstance, toPower[routes.None](s.targets, "reboot")),
		relayed(s.forward, routes.PauseInstance, toPower[routes.None](s.targets, "pause")),
		relayed(s.forward, routes.UnpauseInstance, toPower[routes.None](s.targets, "unpause")),
		relayed(s.forward, routes.RepairInstance, toPower[api.InstanceRepair](s.targets, "repair")),
		relayed(s.forward, routes.ShelveInstance, toPower[api.InstanceShelve](s.targets, "shelve")),
		routes.UnshelveInstance.ServedByRegistry(s.instances.unshelve),

		create(routes.RegisterInstance, db.Instances.Register),
		routes.TransitionInstance.ServedByRegistry(s.instances.transition),
	}
}

func (s *Server) migrationRoutes() []httpjson.Route {
	db := s.Store
	return []httpjson.Route{
		listFilled(routes.ListMigrations, s.migrations.each, s.views.withProgress),
		relayed(s.forward, routes.ListReleased, s.targets.opsOfHost),
		relayed(s.forward, routes.DeleteSource, ofMigration[routes.None](s.targets)),
		show(routes.ShowMigration, s.migrations.show),
		routes.FollowMigration.ServedByRegistry(s.migrations.watch),
		s.pauses.notPaused(relayed(s.forward, routes.UpdateMigration, ofMigration[api.MigrationUpdate](s.targets)), "change"),
		s.pauses.notPaused(relayed(s.forward, routes.CopyMigration, ofMigration[routes.None](s.targets)), "copy"),
		s.pauses.orAdopted(s.pauses.orPaused(relayed(s.forward, routes.CompleteMigration.WithoutBody(), ofMigration[routes.None](s.targets)), db.Pauses.Complete), anyOf, db.Pauses.AdoptMoved),
		s.pauses.orAdopted(s.pauses.orPaused(relayed(s.forward, routes.CancelMigration.WithoutBody(), ofMigration[routes.None](s.targets)), s.pauses.cancel), asleep, db.Pauses.Adopt),
		drastic(s.refusals, routes.AbandonMigration, db.Migrations.Abandon),

		create(routes.RegisterMigration, db.Migrations.Register),
		change(routes.TransitionMigration, db.Migrations.Transition),
		change(routes.PermitPause, db.Pauses.Permit),
	}
}

// Handler returns an http.Handler that serves Routes.
func (s *Server) Handler() http.Handler {
	answer := httpjson.NewHandler(httpjson.Config{
		Routes:    s.guarded(s.Routes()),
		Elsewhere: elsewhere(),
		Authorize: s.Authorize,
		Program:   Program,
		Refused:   s.refusals.audit,
		Log:       s.Log,
		Observe:   s.Metrics.request,
	})
	who := s.Store.Marks.Now().RegistryID + " " + uuid.NewString()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.RegistryHeader, who)
		answer.ServeHTTP(w, r)
	})
}

// elsewhere returns the calls that only a host's daemon answers.
func elsewhere() []httpjson.Elsewhere {
	refused := api.Errorf(api.CodeNotFound, "only a host does this, and here the registry answers: ask volferryd on that host, at its socket")
	return routes.Elsewhere(func(d *routes.Declaration) bool { return d.Registry != nil }, refused)
}

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	return httpjson.WriteOpenAPI(w, "Volferry registry", s.Version, s.Routes())
}
