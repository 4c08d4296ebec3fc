// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// open reports whether a migration in this state, such as orphaned, still has its volume's lock
// and its dst.
func open(state api.MigrationState) bool { return !state.Final() }

// MigrationOpen is the SQL condition that migration m is open. The partial index that serves as the
// lock has the same text.
const MigrationOpen = "m.state NOT IN ('completed', 'cancelled', 'error')"

const migrationQuery = `SELECT m.id, m.volume_id, COALESCE(v.name, m.volume_name), m.instance_id, h.name, m.src_attachment_id, m.dst_attachment_id,
		m.src, m.dst, m.method, m.state, COALESCE(CASE WHEN p.resuming = 1 AND p.phase <> 'done' THEN 'resuming' ELSE NULLIF(p.phase, 'done') END, m.orphaned_from, m.state), m.error, m.started_us, m.finished_us, p.request
	FROM migrations m
	JOIN hosts h ON h.id = m.host_id
	LEFT JOIN volumes v ON v.id = m.volume_id
	LEFT JOIN pauses p ON p.migration_id = m.id`

// Migrations are the migrations.
type Migrations struct {
	db    *DB
	trail *Trail
}

// Each visits the migrations after a key: only open ones, or every one if all is true. An empty
// volumeRef matches every volume. A host sees only its own migrations.
func (s *Migrations) Each(ctx context.Context, volumeRef string, all bool, viewer Viewer, after string, do ledger.Visit[api.Migration]) error {
	return s.db.view(ctx, func(q ledger.Querier) error {
		volume, err := resolveFilter(ctx, q, KindVolume, volumeRef)
		if err != nil {
			return err
		}
		at, err := readKey(after, volume, "", 1)
		if err != nil {
			return err
		}
		query := viewer.migrationsQuery(volume, all)
		read := func(string) ([]api.Migration, bool, error) {
			chunk, err := ledger.QueryAll(ctx, q, scanMigration, query, viewer.HostID, volume, at[0], ledger.ChunkRows)
			if err == nil && len(chunk) > 0 {
				at[0] = chunk[len(chunk)-1].ID
			}
			return chunk, len(chunk) == ledger.ChunkRows, err
		}
		return ledger.InChunks(after, func(m *api.Migration) string { return writeKey(volume, "", m.ID) }, read, do)
	})
}

// migrationsQuery finds the few open migrations by a partial index, not among the many finished
// ones.
func (v Viewer) migrationsQuery(volume string, all bool) string {
	which, key := v.visible(ownsMigration), "m.id"
	if volume != "" {
		which += " AND m.volume_id = ?2"
	}
	if !all {
		which, key = which+" AND "+MigrationOpen, "+m.id" // no index has this order
	}
	return migrationQuery + " WHERE m.id IN (SELECT m.id FROM migrations m WHERE " + which + " AND " + key + " > ?3 ORDER BY " + key + " LIMIT ?4) ORDER BY m.id"
}

// All returns the migrations that Each visits, newest first.
func (s *Migrations) All(ctx context.Context, volumeRef string, all bool, viewer Viewer) ([]api.Migration, error) {
	found, err := gather(func(do ledger.Visit[api.Migration]) error {
		return s.Each(ctx, volumeRef, all, viewer, "", do)
	})
	slices.SortFunc(found, func(a, b api.Migration) int {
		return cmp.Or(b.StartedAt.Compare(*a.StartedAt), strings.Compare(a.ID, b.ID))
	})
	return found, err
}

// Get returns the migration that ref names.
func (s *Migrations) Get(ctx context.Context, ref string, viewer Viewer) (api.Migration, error) {
	return viewVisible(ctx, s.db, KindMigration, ref, viewer, MigrationByID)
}

// MigrationByID returns the migration with the id, or sql.ErrNoRows.
func MigrationByID(ctx context.Context, q ledger.Querier, id string) (api.Migration, error) {
	m, err := scanMigration(q.QueryRowContext(ctx, migrationQuery+" WHERE m.id = ?", id))
	if err != nil {
		return m, fmt.Errorf("read migration %s: %w", id, err)
	}
	return m, nil
}

func scanMigration(row ledger.Scanner) (api.Migration, error) {
	var (
		m                       api.Migration
		src, dst, fail, request []byte
		started                 int64
		finished                *int64
	)
	if err := row.Scan(&m.ID, &m.VolumeID, &m.VolumeName, &m.InstanceID, &m.Host, &m.SrcAttachmentID, &m.DstAttachmentID,
		&src, &dst, &m.Method, &m.State, &m.Phase, &fail, &started, &finished, &request); err != nil {
		return m, err
	}
	if err := json.Unmarshal(src, &m.Src); err != nil {
		return m, fmt.Errorf("decode src: %w", err)
	}
	if err := json.Unmarshal(dst, &m.Dst); err != nil {
		return m, fmt.Errorf("decode dst: %w", err)
	}
	if fail != nil {
		if err := json.Unmarshal(fail, &m.Error); err != nil {
			return m, fmt.Errorf("decode error: %w", err)
		}
	}
	if request != nil {
		var in api.MigrationTarget
		if err := json.Unmarshal(request, &in); err != nil {
			return m, fmt.Errorf("decode request: %w", err)
		}
		in.Verify = cmp.Or(in.Verify, api.VerifyFull)
		m.SetCopyOptions(in.CopyOptions)
		m.DeleteSource = in.DeleteSource
	}
	m.BytesTotal = m.Src.SizeBytes
	at := ledger.FromMicros(started)
	m.StartedAt = &at
	if finished != nil {
		at := ledger.FromMicros(*finished)
		m.FinishedAt = &at
	}
	return m, nil
}

type migrationTx struct{ *Tx }

// AuditMigration adds an event about a migration, with its volume, to the audit trail.
func (tx *Tx) AuditMigration(ctx context.Context, m api.Migration, e api.Event, details map[string]any) error {
	if details == nil {
		details = map[string]any{}
	}
	details["volume_id"], details["volume_name"] = m.VolumeID, m.VolumeName
	e.Host, e.Object, e.Details = m.Host, "migration/"+m.ID, details
	return tx.Audit(ctx, e)
}

// Progress is the reported progress of open migrations, in memory.
type Progress struct {
	db      *DB
	changed *ledger.Notifier
}

// Of returns the last reported phase, progress and rate of a migration; false if there is none.
// They may be older than the stored state. For state and locations use Migrations.Get.
func (s *Progress) Of(id string) (api.Migration, bool) { return s.db.hosts.Progress(id) }

// Next returns a channel that the next report of migrations closes. To miss none, call it before
// Of and then wait.
func (s *Progress) Next() <-chan struct{} { return s.changed.Wait() }

func (s *Progress) cache(ctx context.Context, in api.HostReport) error {
	if in.Migrations == nil {
		return nil
	}
	known := s.db.hosts.ProgressOf(in.ID)
	live := make(map[string]api.Migration, len(in.Migrations))
	for _, m := range in.Migrations {
		if _, ok := known[m.ID]; !ok {
			var owner string
			err := s.db.sqlite.Read.QueryRowContext(ctx, "SELECT host_id FROM migrations WHERE id = ?", m.ID).Scan(&owner)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return fmt.Errorf("look up migration: %w", err)
			}
			if owner != in.ID {
				continue
			}
		}
		live[m.ID] = validate.ReportedMigration(m)
	}
	s.db.hosts.SetProgress(in.ID, live)
	s.changed.Announce()
	return nil
}

func (s *Progress) dropFinished(ctx context.Context) error {
	for _, id := range s.db.hosts.MigrationIDs() {
		var state api.MigrationState
		err := s.db.sqlite.Read.QueryRowContext(ctx, "SELECT state FROM migrations WHERE id = ?", id).Scan(&state)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("look up migration: %w", err)
		}
		if err != nil || state.Final() {
			s.db.hosts.RemoveMigration(id)
		}
	}
	return nil
}
