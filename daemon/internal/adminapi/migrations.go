// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// migrateVolume moves a volume on this host. It passes a move with all guests paused on to the
// registry, because other hosts may have some of the guests.
func (s *Server) migrateVolume(w http.ResponseWriter, r *http.Request) error {
	var target api.MigrationTarget
	r, err := decodeAndKeep(r, &target)
	if err != nil {
		return err
	}
	if target.PauseAll || target.Method == api.MethodLive {
		return s.passOn(w, r, "a move of all guests of a volume is the registry's")
	}
	return s.start(w, r, r.PathValue("volume"), true)
}

func (s *Server) startMigration(w http.ResponseWriter, r *http.Request) error {
	att, err := s.Registry.Attachment(r.Context(), r.PathValue("attachment"))
	if err == nil {
		err = att.CheckStart()
	}
	if err != nil {
		return err
	}
	return s.start(w, r, att.VolumeID, false)
}

func (s *Server) start(w http.ResponseWriter, r *http.Request, volumeID string, composite bool) error {
	var target api.MigrationTarget
	if err := httpjson.Decode(r, &target); err != nil {
		return err
	}
	wait, err := waitOf(r)
	if err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	m, err := s.Migrations.Start(r.Context(), migrate.StartRequest{
		OpID: id, VolumeID: volumeID, Target: target, Composite: composite,
	})
	if err != nil {
		return err
	}
	return s.answerMove(w, r, wait, id, m)
}

// call is one of the manager's calls on a started migration.
type call func(context.Context, migrate.Call) (api.Migration, string, error)

// onMigration makes the call on the migration that find returns.
func onMigration[In any](s *Server, route routes.Route[In, api.Migration], find func(*http.Request, In) (migrate.Call, error), do call) httpjson.Route {
	return route.ServedByDaemon(func(w http.ResponseWriter, r *http.Request) error {
		in, err := route.Decode(r)
		if err != nil {
			return err
		}
		wait, err := waitOf(r)
		if err != nil {
			return err
		}
		c, err := find(r, in)
		if err != nil {
			return err
		}
		if c.OpID, err = opID(r); err != nil {
			return err
		}
		m, id, err := do(r.Context(), c)
		if err != nil {
			return err
		}
		return s.answerMove(w, r, wait, id, m)
	})
}

func (s *Server) byAttachment(r *http.Request, _ routes.None) (migrate.Call, error) {
	subject, err := s.attachmentID(r)
	return migrate.Call{Subject: subject}, err
}

func (s *Server) byAttachments(r *http.Request, in api.MigrationComplete) (migrate.Call, error) {
	subject, err := s.attachmentID(r)
	return migrate.Call{Subject: subject, DstAttachmentID: in.DstAttachmentID}, err
}

// byMigration returns the call for a migration that is named by its own id. A complete needs no
// destination then.
func (s *Server) byMigration(r *http.Request, _ routes.None) (migrate.Call, error) {
	m, err := s.Migrations.Resolve(r.Context(), r.PathValue("migration"))
	return migrate.Call{Subject: m.ID, DstAttachmentID: m.DstAttachmentID}, err
}

// attachmentID resolves the attachment in a path. It also reads the journal, because a repeated
// call must find its migration after a complete has removed the attachment from the registry.
func (s *Server) attachmentID(r *http.Request) (string, error) {
	name := r.PathValue("attachment")
	att, err := s.Registry.Attachment(r.Context(), name)
	if err == nil {
		return att.ID, nil
	}
	if _, findErr := s.Migrations.Find(r.Context(), name); findErr == nil {
		return name, nil
	}
	if vol, volErr := s.Registry.Volume(r.Context(), name); volErr == nil && vol.MigrationID == "" {
		return "", api.Errorf(api.CodeNoMigration, "volume %s is not being moved; `volferryctl migration list --all` shows the moves that have ended", vol.Name)
	}
	return "", err
}

func (s *Server) listMigrations(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	list, err := s.allMigrations(r.Context(), q.Get("all") == "1" || q.Get("all") == "true")
	if err != nil {
		return err
	}
	return routes.ListMigrations.Write(w, http.StatusOK, list)
}

// allMigrations returns the open migrations of this host, or all of them. A move with all guests
// paused is shown as the registry has it, if it answers: this host's journal has at most a part of
// it.
func (s *Server) allMigrations(ctx context.Context, all bool) ([]api.Migration, error) {
	list, err := s.Migrations.List(ctx, all)
	if err != nil || !s.Uplink.Up() {
		return list, err
	}
	ofRegistry, err := s.Registry.Migrations(ctx, "", all)
	if err != nil {
		return list, nil //nolint:nilerr // what this host knows is told whoever is away
	}
	ofRegistry = slices.DeleteFunc(ofRegistry, func(m api.Migration) bool { return !m.LedByRegistry() })
	list = slices.DeleteFunc(list, func(m api.Migration) bool {
		return slices.ContainsFunc(ofRegistry, func(led api.Migration) bool { return led.ID == m.ID })
	})
	return append(list, ofRegistry...), nil
}

func (s *Server) showMigration(r *http.Request, _ routes.None) (api.Migration, error) {
	return s.Migrations.Resolve(r.Context(), r.PathValue("migration"))
}

func (s *Server) updateMigration(r *http.Request, in api.MigrationUpdate) (api.Migration, error) {
	m, err := s.Migrations.Resolve(r.Context(), r.PathValue("migration"))
	if err != nil {
		return m, err
	}
	return s.Migrations.Update(r.Context(), m.ID, in)
}

func (s *Server) watchMigration(w http.ResponseWriter, r *http.Request) error {
	m, err := s.Migrations.Resolve(r.Context(), r.PathValue("migration"))
	if err != nil {
		return err
	}
	stream, err := httpjson.NewStream(w)
	if err != nil {
		return err
	}
	return s.Migrations.Watch(r.Context(), m.ID, func(e api.Event) bool { return stream.Send(e) == nil })
}

func (s *Server) deleteSource(w http.ResponseWriter, r *http.Request) error {
	force, err := forced(r)
	if err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	left, err := s.Migrations.Released.Delete(r.Context(), id, httpjson.Reference(r), force)
	if err != nil {
		return err
	}
	return routes.DeleteSource.Write(w, http.StatusOK, left)
}
