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
		read(routes.ShowStatus, s.status),
		routes.ShowRegistryVersion.ServedByRegistry(s.version),
		routes.ShowOpenAPI.ServedByRegistry(s.openAPI),

		relayed(s, routes.ListOps, s.opsOfHost),
		relayed(s, routes.ShowOp, s.ofOp),
		routes.FollowOp.ServedByRegistry(s.watchOp),

		routes.ListEvents.ServedByRegistry(s.events),
		create(routes.PostEvent, s.Store.Trail.Post),
	}
}

func (s *Server) hostRoutes() []httpjson.Route {
	return []httpjson.Route{
		list(s, routes.ListHosts, inMemory(s.hosts, func(h *api.Host) string { return h.ID })),
		show(routes.ShowHost, s.host),
		write(routes.ReportHost, http.StatusOK, s.report),
		drastic(s, routes.FenceHost, s.fence),
		routes.ForgetHost.ServedByRegistry(s.forgetHost),
		write(routes.RejoinHost, http.StatusOK, s.rejoin),
		routes.FetchTasks.ServedByRegistry(s.tasks),
		write(routes.AnswerTask, http.StatusOK, s.answer),
	}
}

func (s *Server) poolRoutes() []httpjson.Route {
	return []httpjson.Route{
		list(s, routes.ListPools, inMemory(s.pools, func(p *api.Pool) string { return p.Host + "/" + p.Name })),
		read(routes.ShowPool, s.pool),
		write(routes.DrainPool, http.StatusCreated, s.startDrain),

		list(s, routes.ListDrains, s.eachDrain),
		show(routes.ShowDrain, shown(s.drain)),
		routes.FollowDrain.ServedByRegistry(s.watchDrain),
		change(routes.PauseDrain, s.setDrain(api.DrainPaused)),
		change(routes.ResumeDrain, s.setDrain(api.DrainRunning)),
		change(routes.StopDrain, s.setDrain(api.DrainStopped)),
	}
}

func (s *Server) typeRoutes() []httpjson.Route {
	db := s.Store
	return []httpjson.Route{
		list(s, routes.ListTypes, inMemory(alike(db.Types.All), func(t *api.VolumeType) string { return t.ID })),
		create(routes.CreateType, db.Types.Create),
		show(routes.ShowType, shown(db.Types.Get)),
		change(routes.UpdateType, db.Types.Update),
		remove(routes.DeleteType, db.Types.Delete),

		list(s, routes.ListPolicies, inMemory(alike(db.Policies.All), func(p *api.Policy) string { return p.Name })),
		change(routes.SetPolicy, db.Policies.Set),
	}
}

func (s *Server) volumeRoutes() []httpjson.Route {
	db := s.Store
	return []httpjson.Route{
		list(s, routes.ListVolumes, seen(db.Volumes.Each)),
		show(routes.ShowVolume, db.Volumes.Get),
		relayed(s, routes.CreateVolume, s.toCreateVolume),
		relayed(s, routes.AdoptVolume, s.toAdoptVolume),
		change(routes.UpdateVolume, db.Volumes.Update),
		relayed(s, routes.DeleteVolume, s.toDelete),
		change(routes.ForgetVolume, s.forgetVolume),
		relayed(s, routes.ResizeVolume, s.toResize),
		write(routes.SetVolumeSize, http.StatusOK, s.setVolumeSize),
		routes.RetypeVolume.ServedByRegistry(s.retype),
		write(routes.PlanRetype, http.StatusOK, s.planRetype),
		shelvedOr(s, routes.AttachVolume, db.Shelf.Attach, s.toAttach),
		shelvedOr(s, routes.DetachVolume, db.Shelf.Detach, s.toDetach),
		routes.MigrateVolume.ServedByRegistry(s.migrateVolume),
		relayed(s, routes.PlanMigration, s.toMigrate),
		write(routes.EstimateMigration, http.StatusOK, s.estimateMove),
		s.which(relayed(s, routes.ShowWhich, ofVolume[routes.None](s))),

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
		list(s, routes.ListAttachments, s.eachAttachment),
		show(routes.ShowAttachment, db.Attachments.Get),
		routes.DeleteAttachment.ServedByRegistry(s.deleteAttachment),

		relayed(s, routes.StartMigration, s.toStart),
		relayed(s, routes.CopyByAttachment, ofAttachment[routes.None](s)),
		relayed(s, routes.CompleteByAttachment, ofAttachment[api.MigrationComplete](s)),
		relayed(s, routes.CancelByAttachment, ofAttachment[routes.None](s)),

		create(routes.ReserveAttachment, db.Attachments.Reserve),
		change(routes.TransitionAttachment, db.Attachments.Transition),
		change(routes.ReleaseAttachment, db.Attachments.Release),
	}
}

func (s *Server) instanceRoutes() []httpjson.Route {
	db := s.Store
	return []httpjson.Route{
		list(s, routes.ListInstances, seen(db.Instances.Each)),
		show(routes.ShowInstance, db.Instances.Get),
		relayed(s, routes.AdoptInstance, s.toAdoptInstance),
		routes.ForgetInstance.ServedByRegistry(s.forgetInstance),
		change(routes.LockInstance, db.Instances.Lock),
		change(routes.UnlockInstance, s.unlockInstance),
		relayed(s, routes.StartInstance, toPower[routes.None](s, "start")),
		relayed(s, routes.StopInstance, toPower[api.InstanceStop](s, "stop")),
		relayed(s, routes.RebootInstance, toPower[routes.None](s, "reboot")),
		relayed(s, routes.PauseInstance, toPower[routes.None](s, "pause")),
		relayed(s, routes.UnpauseInstance, toPower[routes.None](s, "unpause")),
		relayed(s, routes.RepairInstance, toPower[api.InstanceRepair](s, "repair")),
		relayed(s, routes.ShelveInstance, toPower[api.InstanceShelve](s, "shelve")),
		routes.UnshelveInstance.ServedByRegistry(s.unshelve),

		create(routes.RegisterInstance, db.Instances.Register),
		routes.TransitionInstance.ServedByRegistry(s.transitionInstance),
	}
}

func (s *Server) migrationRoutes() []httpjson.Route {
	db := s.Store
	return []httpjson.Route{
		listFilled(s, routes.ListMigrations, s.eachMigration, s.withProgress),
		relayed(s, routes.ListReleased, s.opsOfHost),
		relayed(s, routes.DeleteSource, ofMigration[routes.None](s)),
		show(routes.ShowMigration, s.migration),
		routes.FollowMigration.ServedByRegistry(s.watchMigration),
		s.notPaused(relayed(s, routes.UpdateMigration, ofMigration[api.MigrationUpdate](s)), "change"),
		s.notPaused(relayed(s, routes.CopyMigration, ofMigration[routes.None](s)), "copy"),
		s.orAdopted(s.orPaused(relayed(s, routes.CompleteMigration.WithoutBody(), ofMigration[routes.None](s)), db.Pauses.Complete), anyOf, db.Pauses.AdoptMoved),
		s.orAdopted(s.orPaused(relayed(s, routes.CancelMigration.WithoutBody(), ofMigration[routes.None](s)), s.cancelPaused), asleep, db.Pauses.Adopt),
		drastic(s, routes.AbandonMigration, db.Migrations.Abandon),

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
		Refused:   s.auditRefusal,
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
