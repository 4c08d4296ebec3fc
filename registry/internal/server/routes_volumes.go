// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

func (s *Server) volumeRoutes() []httpjson.Route {
	db, one := s.Store, out("volume", api.Volume{})
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/volumes", Access: read, Hosts: own, Summary: "Every volume", Out: out("volumes", []api.Volume{}), Handler: list("volumes", db.Volumes)},
		{Method: http.MethodPost, Path: "/v1/volumes", Access: operate, Hosts: never, Summary: "Have a host make a volume", Query: []string{hostParameter}, In: api.VolumeCreate{}, Out: one, Handler: relayed(s, s.toCreateVolume, hostParameter)},
		{Method: http.MethodPost, Path: "/v1/volumes:adopt", Access: operate, Hosts: never, Summary: "Have a host register an image that exists as a volume", Query: []string{hostParameter}, In: api.VolumeAdopt{}, Out: one, Handler: relayed(s, s.toAdoptVolume, hostParameter)},
		{Method: http.MethodPost, Path: "/v1/volumes:register", Access: local, Hosts: own, Summary: "A host records a volume that it makes or has found", In: api.VolumeRegister{}, Out: one, Handler: create("volume", db.RegisterVolume)},
		{Method: http.MethodGet, Path: "/v1/volumes/{volume}", Access: read, Hosts: own, Summary: "One volume", Out: one, Handler: show("volume", db.Volume)},
		{Method: http.MethodPatch, Path: "/v1/volumes/{volume}", Access: operate, Hosts: own, Summary: "Rename a volume or make it bootable", In: api.VolumeUpdate{}, Out: one, Handler: change("volume", db.UpdateVolume)},
		{Method: http.MethodDelete, Path: "/v1/volumes/{volume}", Access: operate, Hosts: never, Summary: "Have a host delete a volume and its bytes", Query: []string{"force"}, Out: one, Handler: relayed(s, s.toDelete, "force")},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/transition", Access: local, Hosts: own, Summary: "A host moves a volume to another status", In: api.VolumeTransition{}, Out: one, Handler: change("volume", db.TransitionVolume)},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/grow", Access: local, Hosts: own, Summary: "A host has seen that the image of a volume has grown", In: api.VolumeGrow{}, Out: one, Handler: change("volume", db.GrowVolume)},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/resize", Access: operate, Hosts: never, Summary: "Have a host make a volume larger, also under a running guest", In: api.VolumeResize{}, Out: one, Handler: relayed(s, s.toResize)},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/resize:begin", Access: local, Hosts: own, Summary: "A host keeps others from a volume while it makes it larger", In: api.VolumeResizeBegin{}, Out: one, Handler: change("volume", db.BeginResize)},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/resize:end", Access: local, Hosts: own, Summary: "A host says what size a volume has that it made larger, and lets others at it", In: api.VolumeResizeEnd{}, Out: one, Handler: change("volume", db.EndResize)},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/forget", Access: operate, Hosts: own, Summary: "Let go of a volume that is not attached; its bytes are left as they are", In: api.VolumeForget{}, Out: one, Handler: change("volume", s.forgetVolume)},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/attach", Access: operate, Hosts: own, Summary: "Have a host give a volume to an instance; to one that no host has the registry gives it at once, without an op", In: api.VolumeAttach{}, Out: accepted("attachment", api.Attachment{}), Handler: shelvedOr(s, db.AttachShelved, s.toAttach)},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/detach", Access: operate, Hosts: own, Summary: "Have a host take a volume from an instance; from one that no host has the registry takes it at once, without an op", In: api.VolumeDetach{}, Out: accepted("attachment", api.Attachment{}), Handler: shelvedOr(s, db.DetachShelved, s.toDetach)},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/migrate", Access: operate, Hosts: own, Summary: "Have a host move a volume: start, copy and complete in one; with pause_all the registry moves it, and answers with the migration alone, and a host may ask for it whose own all guests are", In: api.MigrationTarget{}, Out: accepted("migration", api.Migration{}), Handler: s.migrateVolume},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/migrate:estimate", Access: operate, Hosts: own, Summary: "What a move with all guests paused is expected to cost; nothing is done", In: api.MigrationTarget{}, Out: out("estimate", api.PauseEstimate{}), Handler: s.estimateMove},
		{Method: http.MethodPost, Path: "/v1/volumes/{volume}/retype", Access: operate, Hosts: never, Summary: "Give a volume another type, moving it if it must be and may be", In: api.VolumeRetype{}, Out: one, Handler: s.retype},
		{Method: http.MethodGet, Path: "/v1/volumes/{volume}/which", Access: read, Hosts: never, Summary: "Have a host say which copy of a volume is the good one; of one whose host is fenced the registry says what it knows itself", Out: out("which", api.Which{}), Handler: s.which()},
	}
}

func (s *Server) attachmentRoutes() []httpjson.Route {
	db, one, moved := s.Store, out("attachment", api.Attachment{}), accepted("migration", api.Migration{})
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/attachments", Access: read, Hosts: own, Summary: "Attachments", Query: []string{"volume", "instance"}, Out: out("attachments", []api.Attachment{}), Handler: s.attachments},
		{Method: http.MethodPost, Path: "/v1/attachments", Access: local, Hosts: own, Summary: "A host reserves a volume for an instance", In: api.AttachmentReserve{}, Out: one, Handler: create("attachment", db.ReserveAttachment)},
		{Method: http.MethodGet, Path: "/v1/attachments/{attachment}", Access: read, Hosts: own, Summary: "One attachment", Out: one, Handler: show("attachment", db.Attachment)},
		{Method: http.MethodPost, Path: "/v1/attachments/{attachment}/transition", Access: local, Hosts: own, Summary: "A host moves an attachment to another state", In: api.AttachmentTransition{}, Out: one, Handler: change("attachment", db.TransitionAttachment)},
		{Method: http.MethodPost, Path: "/v1/attachments/{attachment}/release", Access: local, Hosts: own, Summary: "A host has seen that the guest does not have the disk", In: api.AttachmentRelease{}, Out: one, Handler: change("attachment", db.ReleaseAttachment)},
		{Method: http.MethodDelete, Path: "/v1/attachments/{attachment}", Access: operate, Hosts: own, Summary: "Have a host delete an attachment; with force=1, delete one whose host is fenced; one of an instance that no host has is deleted at once", Query: []string{"force"}, Out: one, Handler: s.deleteAttachment},
		{Method: http.MethodPost, Path: "/v1/attachments/{attachment}/migration:start", Access: operate, Hosts: never, Summary: "Have a host freeze the volume under an overlay", In: api.MigrationTarget{}, Out: moved, Handler: relayed(s, s.toStart)},
		{Method: http.MethodPost, Path: "/v1/attachments/{attachment}/migration:copy", Access: operate, Hosts: never, Summary: "Have a host copy src to dst", Out: moved, Handler: relayed(s, ofAttachment[nothing](s))},
		{Method: http.MethodPost, Path: "/v1/attachments/{attachment}/migration:complete", Access: operate, Hosts: never, Summary: "Have a host put the instance onto dst", In: api.MigrationComplete{}, Out: moved, Handler: relayed(s, ofAttachment[api.MigrationComplete](s))},
		{Method: http.MethodPost, Path: "/v1/attachments/{attachment}/migration:cancel", Access: operate, Hosts: never, Summary: "Have a host bring the instance back to src", Out: moved, Handler: relayed(s, ofAttachment[nothing](s))},
	}
}

func (s *Server) instanceRoutes() []httpjson.Route {
	db, one, moved := s.Store, out("instance", api.Instance{}), accepted("instance", api.Instance{})
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/instances", Access: read, Hosts: own, Summary: "Every instance", Out: out("instances", []api.Instance{}), Handler: list("instances", db.Instances)},
		{Method: http.MethodPost, Path: "/v1/instances:register", Access: local, Hosts: own, Summary: "A host records an adopted instance with its disks", In: api.InstanceRegister{}, Out: one, Handler: create("instance", db.RegisterInstance)},
		{Method: http.MethodPost, Path: "/v1/instances:adopt", Access: operate, Hosts: never, Summary: "Have a host take over the disks of domains that exist", Query: []string{hostParameter}, In: api.InstanceAdopt{}, Out: one, Handler: relayed(s, s.toAdoptInstance, hostParameter)},
		{Method: http.MethodGet, Path: "/v1/instances/{instance}", Access: read, Hosts: own, Summary: "One instance", Out: one, Handler: show("instance", db.Instance)},
		{Method: http.MethodDelete, Path: "/v1/instances/{instance}", Access: operate, Hosts: own, Summary: "Forget an instance; its volumes stay; with_definition=1 also one that no host has", Query: []string{"with_definition"}, Out: one, Handler: s.forgetInstance},
		{Method: http.MethodPost, Path: "/v1/instances/{instance}/transition", Access: local, Hosts: own, Summary: "A host moves an instance between itself and the shelf", In: api.InstanceTransition{}, Out: shelvedInstance(api.ShelvedInstance{Definition: &api.InstanceDefinition{}}), Handler: s.transitionInstance},
		{Method: http.MethodPost, Path: "/v1/instances/{instance}/lock", Access: operate, Hosts: own, Summary: "Keep everybody from changing an instance", In: api.InstanceLock{}, Out: one, Handler: change("instance", db.LockInstance)},
		{Method: http.MethodPost, Path: "/v1/instances/{instance}/unlock", Access: operate, Hosts: own, Summary: "Let an instance be changed again", Out: one, Handler: s.unlockInstance},
		{Method: http.MethodPost, Path: "/v1/instances/{instance}/start", Access: operate, Hosts: never, Summary: "Have a host start an instance", Out: moved, Handler: relayed(s, toPower[nothing](s, "start"))},
		{Method: http.MethodPost, Path: "/v1/instances/{instance}/stop", Access: operate, Hosts: never, Summary: "Have a host stop an instance", In: api.InstanceStop{}, Out: moved, Handler: relayed(s, toPower[api.InstanceStop](s, "stop"))},
		{Method: http.MethodPost, Path: "/v1/instances/{instance}/reboot", Access: operate, Hosts: never, Summary: "Have a host reboot an instance", Out: moved, Handler: relayed(s, toPower[nothing](s, "reboot"))},
		{Method: http.MethodPost, Path: "/v1/instances/{instance}/pause", Access: operate, Hosts: never, Summary: "Have a host pause an instance", Out: moved, Handler: relayed(s, toPower[nothing](s, "pause"))},
		{Method: http.MethodPost, Path: "/v1/instances/{instance}/unpause", Access: operate, Hosts: never, Summary: "Have a host let a paused instance run", Out: moved, Handler: relayed(s, toPower[nothing](s, "unpause"))},
		{Method: http.MethodPost, Path: "/v1/instances/{instance}/shelve", Access: operate, Hosts: never, Summary: "Have a host put an instance away", In: api.InstanceShelve{}, Out: moved, Handler: relayed(s, toPower[api.InstanceShelve](s, "shelve"))},
		{Method: http.MethodPost, Path: "/v1/instances/{instance}/unshelve", Access: operate, Hosts: never, Summary: "Have a host bring a shelved instance back and start it", In: api.InstanceUnshelve{}, Out: moved, Handler: s.unshelve},
	}
}

func (s *Server) migrationRoutes() []httpjson.Route {
	db, one, moved := s.Store, out("migration", api.Migration{}), accepted("migration", api.Migration{})
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/migrations", Access: read, Hosts: own, Summary: "Open migrations, or all", Query: []string{"volume", "all"}, Out: out("migrations", []api.Migration{}), Handler: s.migrations},
		{Method: http.MethodPost, Path: "/v1/migrations:register", Access: local, Hosts: own, Summary: "A host locks a volume for a migration and reserves its destination", In: api.MigrationRegister{}, Out: one, Handler: create("migration", db.RegisterMigration)},
		{Method: http.MethodGet, Path: "/v1/migrations/{migration}", Access: read, Hosts: own, Summary: "One migration", Out: one, Handler: show("migration", s.migration)},
		{Method: http.MethodGet, Path: "/v1/migrations/{migration}/events", Access: read, Hosts: own, Summary: "Follow a migration (NDJSON)", Query: []string{"since"}, Lines: api.Event{}, Handler: s.watchMigration},
		{Method: http.MethodPatch, Path: "/v1/migrations/{migration}", Access: operate, Hosts: never, Summary: "Have a host change a migration while it runs", In: api.MigrationUpdate{}, Out: one, Handler: s.notPaused(relayed(s, ofMigration[api.MigrationUpdate](s)), "change")},
		{Method: http.MethodPost, Path: "/v1/migrations/{migration}/transition", Access: local, Hosts: own, Summary: "A host moves a migration to another state", In: api.MigrationTransition{}, Out: one, Handler: change("migration", db.TransitionMigration)},
		{Method: http.MethodPost, Path: "/v1/migrations/{migration}/permit", Access: local, Hosts: own, Summary: "A host asks whether it may suspend, restore or resume a guest of a move with all guests paused", In: api.PausePermit{}, Out: one, Handler: change("migration", db.PermitPause)},
		{Method: http.MethodPost, Path: "/v1/migrations/{migration}/copy", Access: operate, Hosts: never, Summary: "Have a host copy src to dst", Out: moved, Handler: s.notPaused(relayed(s, ofMigration[nothing](s)), "copy")},
		{Method: http.MethodPost, Path: "/v1/migrations/{migration}/complete", Access: operate, Hosts: own, Summary: "Have a host end a migration at dst", In: api.PauseEnd{}, Out: moved, Handler: s.orPaused(relayed(s, ofMigration[nothing](s)), db.CompletePause)},
		{Method: http.MethodPost, Path: "/v1/migrations/{migration}/cancel", Access: operate, Hosts: own, Summary: "Have a host end a migration at src", In: api.PauseEnd{}, Out: moved, Handler: s.orAdopted(s.orPaused(relayed(s, ofMigration[nothing](s)), s.cancelPaused))},
		{Method: http.MethodPost, Path: "/v1/migrations/{migration}/abandon", Access: fence, Hosts: never, Summary: "End a migration whose host is fenced, saying which copy is kept", In: api.MigrationAbandon{}, Out: one, Handler: drastic(s, "migration", db.AbandonMigration)},
	}
}

func (s *Server) drainRoutes() []httpjson.Route {
	one := out("drain", api.Drain{})
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/drains", Access: read, Hosts: never, Summary: "Every drain, newest first", Out: out("drains", []api.Drain{}), Handler: list("drains", listed(s.drains))},
		{Method: http.MethodGet, Path: "/v1/drains/{drain}", Access: read, Hosts: never, Summary: "One drain with its volumes", Out: one, Handler: show("drain", shown(s.drain))},
		{Method: http.MethodGet, Path: "/v1/drains/{drain}/events", Access: read, Hosts: never, Summary: "Follow a drain (NDJSON)", Query: []string{"since"}, Lines: api.Event{}, Handler: s.watchDrain},
		{Method: http.MethodPost, Path: "/v1/drains/{drain}/pause", Access: operate, Hosts: never, Summary: "Begin no more moves; those that run go on", Out: one, Handler: s.setDrain(api.DrainPaused)},
		{Method: http.MethodPost, Path: "/v1/drains/{drain}/resume", Access: operate, Hosts: never, Summary: "Let a paused drain go on", Out: one, Handler: s.setDrain(api.DrainRunning)},
		{Method: http.MethodPost, Path: "/v1/drains/{drain}/stop", Access: operate, Hosts: never, Summary: "End a drain; the moves that run go on", Out: one, Handler: s.setDrain(api.DrainStopped)},
	}
}

func (s *Server) opRoutes() []httpjson.Route {
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/ops", Access: read, Hosts: never, Summary: "Have a host list its operations that are not finished", Query: []string{hostParameter}, Out: out("ops", []api.Op{}), Handler: relayed(s, s.opsOfHost, hostParameter)},
		{Method: http.MethodGet, Path: "/v1/ops/{op}", Access: read, Hosts: never, Summary: "What became of what a host was asked for", Out: out("op", api.Op{}), Handler: relayed(s, s.ofOp)},
		{Method: http.MethodGet, Path: "/v1/ops/{op}/events", Access: read, Hosts: never, Summary: "Follow what a host was asked for (NDJSON)", Query: []string{"since"}, Lines: api.Event{}, Handler: s.watchOp},
	}
}
