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

// migrateVolume moves a volume on this host. It passes a move of all guests of a volume on to the
// registry, because other hosts may have some of the guests.
func (s *migrationAPI) migrateVolume(w http.ResponseWriter, r *http.Request) error {
	var target api.MigrationTarget
	r, err := decodeAndKeep(r, &target)
	if err != nil {
		return err
	}
	if target.PauseAll || target.Method == api.MethodLive {
		return s.passing.passOn(w, r, "a move of all guests of a volume is the registry's")
	}
	return s.start(w, r, r.PathValue("volume"), true)
}

func (s *migrationAPI) startMigration(w http.ResponseWriter, r *http.Request) error {
	att, err := s.registry.Attachment(r.Context(), r.PathValue("attachment"))
	if err == nil {
		err = att.CheckStart()
	}
	if err != nil {
		return err
	}
	return s.start(w, r, att.VolumeID, false)
}

func (s *migrationAPI) start(w http.ResponseWriter, r *http.Request, volumeID string, composite bool) error {
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
	m, err := s.moves.Start(r.Context(), migrate.StartRequest{
		OpID: id, VolumeID: volumeID, Target: target, Composite: composite,
	})
	if err != nil {
		return err
	}
	return s.answerMove(w, r, wait, id, m)
}

type call func(context.Context, migrate.Call) (api.Migration, string, error)

func onMigration[In any](s *migrationAPI, route routes.Route[In, api.Migration], find func(*http.Request, In) (migrate.Call, error), do call) httpjson.Route {
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

func (s *migrationAPI) byAttachment(r *http.Request, _ routes.None) (migrate.Call, error) {
	subject, err := s.attachmentID(r)
	return migrate.Call{Subject: subject}, err
}

func (s *migrationAPI) byAttachments(r *http.Request, in api.MigrationComplete) (migrate.Call, error) {
	subject, err := s.attachmentID(r)
	return migrate.Call{Subject: subject, DstAttachmentID: in.DstAttachmentID}, err
}

// byMigration returns the call for a migration that is named by its own id. The request need not
// name the destination attachment.
func (s *migrationAPI) byMigration(r *http.Request, _ routes.None) (migrate.Call, error) {
	m, err := s.moves.Resolve(r.Context(), r.PathValue("migration"))
	return migrate.Call{Subject: m.ID, DstAttachmentID: m.DstAttachmentID}, err
}

// attachmentID returns the id of the attachment in a path. It also reads the journal, for a
// repeated call after the complete op has removed the attachment from the registry.
func (s *migrationAPI) attachmentID(r *http.Request) (string, error) {
	name := r.PathValue("attachment")
	att, err := s.registry.Attachment(r.Context(), name)
	if err == nil {
		return att.ID, nil
	}
	if _, findErr := s.moves.Find(r.Context(), name); findErr == nil {
		return name, nil
	}
	if vol, volErr := s.registry.Volume(r.Context(), name); volErr == nil && vol.MigrationID == "" {
		return "", api.Errorf(api.CodeNoMigration, "volume %s is not being moved; `volferryctl migration list --all` shows the moves that have ended", vol.Name)
	}
	return "", err
}

func (s *migrationAPI) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	list, err := s.all(r.Context(), q.Get("all") == "1" || q.Get("all") == "true")
	if err != nil {
		return err
	}
	return routes.ListMigrations.Write(w, http.StatusOK, list)
}

// all returns this host's open migrations or, if all is true, all its migrations. A move that the
// registry leads is as the registry describes it, if the registry answers: this host's journal has
// at most a part.
func (s *migrationAPI) all(ctx context.Context, all bool) ([]api.Migration, error) {
	list, err := s.moves.List(ctx, all)
	if err != nil || !s.uplink.Up() {
		return list, err
	}
	ofRegistry, err := s.registry.Migrations(ctx, "", all)
	if err != nil {
		return list, nil //nolint:nilerr // without the registry the answer has what this host knows
	}
	ofRegistry = slices.DeleteFunc(ofRegistry, func(m api.Migration) bool { return !m.LedByRegistry() })
	list = slices.DeleteFunc(list, func(m api.Migration) bool {
		return slices.ContainsFunc(ofRegistry, func(led api.Migration) bool { return led.ID == m.ID })
	})
	return append(list, ofRegistry...), nil
}

func (s *migrationAPI) show(r *http.Request, _ routes.None) (api.Migration, error) {
	return s.moves.Resolve(r.Context(), r.PathValue("migration"))
}

func (s *migrationAPI) update(r *http.Request, in api.MigrationUpdate) (api.Migration, error) {
	m, err := s.moves.Resolve(r.Context(), r.PathValue("migration"))
	if err != nil {
		return m, err
	}
	return s.moves.Update(r.Context(), m.ID, in)
}

func (s *migrationAPI) watch(w http.ResponseWriter, r *http.Request) error {
	m, err := s.moves.Resolve(r.Context(), r.PathValue("migration"))
	if err != nil {
		return err
	}
	stream, err := httpjson.NewStream(w)
	if err != nil {
		return err
	}
	return s.moves.Watch(r.Context(), m.ID, func(e api.Event) bool { return stream.Send(e) == nil })
}

func (s *migrationAPI) deleteSource(w http.ResponseWriter, r *http.Request) error {
	force, err := forced(r)
	if err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	left, err := s.moves.Released.Delete(r.Context(), id, httpjson.Reference(r), force)
	if err != nil {
		return err
	}
	return routes.DeleteSource.Write(w, http.StatusOK, left)
}

// unlessRegistryLeads passes a call on to the registry if the registry leads the migration: this
// host knows at most a part of it. The registry may lead a migration that is unknown here, so the
// call fails while the registry does not answer.
func (s *migrationAPI) unlessRegistryLeads(route httpjson.Route) httpjson.Route {
	next := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		ref := r.PathValue("migration")
		switch leads, err := s.registryLeads(r.Context(), ref); {
		case err != nil:
			return err
		case leads:
			return s.passing.passOn(w, r, "migration "+ref+" is the registry's, with all guests paused")
		}
		return next(w, r)
	}
	return route
}

func (s *migrationAPI) registryLeads(ctx context.Context, ref string) (bool, error) {
	m, err := s.moves.Resolve(ctx, ref)
	if err != nil {
		m, err = s.registry.Migration(ctx, ref)
	}
	if err != nil && away(err) {
		return false, err
	}
	return err == nil && m.LedByRegistry(), nil
}
