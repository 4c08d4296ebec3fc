// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// Get returns a migration.
func (m *Manager) Get(ctx context.Context, id string) (api.Migration, error) {
	h, err := m.History.Load(ctx, id)
	if err != nil {
		return api.Migration{}, err
	}
	return m.render(h), nil
}

// List returns the migrations of this host, oldest first: all, or only the open ones.
func (m *Manager) List(ctx context.Context, all bool) ([]api.Migration, error) {
	out := []api.Migration{}
	err := m.each(ctx, all, func(mig PacedMigration) { out = append(out, mig.Migration) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PacedMigration is a migration and the kind of its Pacing.
type PacedMigration struct {
	api.Migration

	PacingKind move.PacingKind
}

// Open returns the open migrations of this host, oldest first.
func (m *Manager) Open(ctx context.Context) (open []PacedMigration, err error) {
	err = m.each(ctx, false, func(mig PacedMigration) { open = append(open, mig) })
	return open, err
}

func (m *Manager) each(ctx context.Context, all bool, visit func(PacedMigration)) error {
	ids, err := m.History.IDs(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if m.History.HasEnded(id) && !all {
			continue
		}
		h, err := m.History.Load(ctx, id)
		if err != nil {
			return err
		}
		mig, pacing := m.renderPaced(h)
		if history.IsOver(&mig) {
			m.History.NoteEnded(id)
		}
		if all || !history.IsOver(&mig) {
			visit(PacedMigration{mig, pacing})
		}
	}
	return nil
}

// Watch yields the migration now and after each change, until the migration or ctx ends. Seq grows
// with the journal; an event about progress has the Seq of the last record.
func (m *Manager) Watch(ctx context.Context, id string, yield func(api.Event) bool) error {
	for range m.watch.Of(ctx, id) {
		h, err := m.History.Load(ctx, id)
		if err != nil {
			return err
		}
		mig := m.render(h)
		seq, err := m.History.Sequence(ctx, h)
		if err != nil {
			return err
		}
		if !yield(api.Event{Seq: seq, At: m.ports.Now().UTC(), What: "migration", Object: id, To: string(mig.State), Migration: &mig}) {
			return nil
		}
		if mig.State.Final() {
			return nil
		}
	}
	return nil
}

// Resolve returns the migration with this id, or the only migration with an id that begins with
// name.
func (m *Manager) Resolve(ctx context.Context, name string) (api.Migration, error) {
	id, err := m.History.Resolve(ctx, name)
	if err != nil {
		return api.Migration{}, err
	}
	return m.Get(ctx, id)
}
