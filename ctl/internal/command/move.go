// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"slices"
	"strings"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// ofMove calls the function do with ref, a migration, and handles the error as orOfMove does.
func ofMove(ctx context.Context, s *session.Session, ref string, do func(ref string) error) error {
	return orOfMove(ctx, s, ref, do(ref), do)
}

// orOfMove handles the error of a request for migration ref. Without such a migration, it finds
// the migration of the volume or source attachment that ref names, prints it if it is one of
// several, and calls do with its id. If there is none, it returns err.
func orOfMove(ctx context.Context, s *session.Session, ref string, err error, do func(ref string) error) error {
	if !isNotFound(err) {
		return err
	}
	m, several, findErr := findMove(ctx, s, ref)
	if findErr != nil {
		return findErr
	}
	if m == nil {
		return &session.AdvisedError{
			Err:  api.Errorf(api.CodeNotFound, "there is no migration %q, and no migration of a volume or an attachment with this name", ref),
			Exit: api.ExitNotFound, Advice: "'" + session.Program + " migration list --all' lists all migrations.",
		}
	}
	if several {
		which := "the last one of volume " + render.VolumeName(m)
		if !m.State.Final() {
			which = "the current one of volume " + render.VolumeName(m)
		}
		s.Say("Migration %s: %s.", m.ID, which)
	}
	return do(m.ID)
}

// findMove returns the open migration of the volume or source attachment that ref names, otherwise
// the newest; nil if there is none or if migrations cannot be read. several reports whether it was
// chosen from several open or several ended ones.
func findMove(ctx context.Context, s *session.Session, ref string) (m *api.Migration, several bool, err error) {
	for _, list := range []routes.Route[routes.None, []api.Migration]{routes.ListMigrations, routes.ListMigrations.With("all", "1")} {
		moves, _, err := session.List(ctx, s, list)
		if err != nil {
			return nil, false, nil //nolint:nilerr // the error of the first request is reported
		}
		slices.SortStableFunc(moves, func(a, b api.Migration) int { return startedOf(&b).Compare(startedOf(&a)) })
		found := movesNamed(moves, ref)
		var volumes []string
		for i := range found {
			if !slices.Contains(volumes, found[i].VolumeID) {
				volumes = append(volumes, found[i].VolumeID)
			}
		}
		switch {
		case len(volumes) > 1:
			return nil, false, api.Errorf(api.CodeInvalidArgument, "%s could be any of the volumes %s; give an id", ref, strings.Join(volumes, ", "))
		case len(found) > 0:
			return &found[0], len(found) > 1, nil
		}
	}
	return nil, false, nil
}

// movesNamed returns the moves of the volume or source attachment with the id ref. Without any, it
// returns the moves of volumes with the name or id prefix ref.
func movesNamed(moves []api.Migration, ref string) (named []api.Migration) {
	byID := func(m *api.Migration) bool { return ref == m.VolumeID || ref == m.SrcAttachmentID }
	otherwise := func(m *api.Migration) bool {
		return ref == m.VolumeName ||
			len(ref) >= api.MinIDPrefix && (strings.HasPrefix(m.VolumeID, ref) || strings.HasPrefix(m.SrcAttachmentID, ref))
	}
	for _, names := range []func(m *api.Migration) bool{byID, otherwise} {
		for i := range moves {
			if names(&moves[i]) {
				named = append(named, moves[i])
			}
		}
		if len(named) > 0 {
			return named
		}
	}
	return nil
}
