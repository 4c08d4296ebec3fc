// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/schema"
)

// An older version saved guests while others ran, so with several guests no order of their memories
// is known. A single guest has no such problem.
func TestAMoveOfAnOlderVersionRestoresNoMemoryBesideOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		guests string
		barred bool
	}{
		"several guests": {"('m', 'one', 'h', 'saved'), ('m', 'two', 'h', 'restored')", true},
		"one guest":      {"('m', 'one', 'h', 'saved')", false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "registry.db")
			const before = 8 // number of schemas before the barriers
			old, err := sqlitedb.Open(t.Context(), path, schema.Versions()[:before])
			if err != nil {
				t.Fatal(err)
			}
			for _, change := range []string{
				"INSERT INTO hosts (id, name, version, boot_id, epoch, last_seen_us, created_us) VALUES ('h', 'h', '', '', 1, 0, 0)",
				`INSERT INTO migrations (id, volume_id, volume_name, instance_id, host_id, src_attachment_id, dst_attachment_id, src, dst, method, to_type_id, state, op_id, started_us)
					VALUES ('m', 'v', 'v', '', 'h', '', '', '{}', '{}', 'save', '', 'completing', 'm', 0)`,
				"INSERT INTO pauses (migration_id, phase, request) VALUES ('m', 'restoring', '{}')",
				"INSERT INTO pause_instances (migration_id, instance_id, host_id, state) VALUES " + tc.guests,
			} {
				if _, err := old.Write.ExecContext(t.Context(), change); err != nil {
					t.Fatalf("%s: %v", change, err)
				}
			}
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			s := openStore(t, path)
			p := must(s.Pauses.Get(t.Context(), "m"))(t)
			if p.Phase != PauseRestoring || p.Resuming {
				t.Errorf("move = %+v", p)
			}
			for _, to := range []string{api.PermitRestore, api.PermitResume} {
				if err := p.memoryBarred(p.Instances[0], to, s.Now()); (err != nil) != tc.barred {
					t.Errorf("%s: %v", to, err)
				}
			}
		})
	}
}

func TestAMoveOfTheVersionBeforeKeepsWhatIsKnownOfItsGuests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	const before = 13 // number of schemas before live moves
	old, err := sqlitedb.Open(t.Context(), path, schema.Versions()[:before])
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{
		"INSERT INTO hosts (id, name, version, boot_id, epoch, last_seen_us, created_us) VALUES ('h', 'h', '', '', 1, 0, 0)",
		`INSERT INTO migrations (id, volume_id, volume_name, instance_id, host_id, src_attachment_id, dst_attachment_id, src, dst, method, to_type_id, state, op_id, started_us)
			VALUES ('m', 'v', 'v', '', 'h', '', '', '{}', '{}', 'save', '', 'cancelling', 'm', 0)`,
		"INSERT INTO pauses (migration_id, phase, request, attempt, drop_end, stopped_us, resuming) VALUES ('m', 'cancelling', '{}', 3, 'dst', 7, 1)",
		"INSERT INTO pause_instances (migration_id, instance_id, host_id, state, save_attempt, attempt, writes, ran_us, discard) VALUES ('m', 'one', 'h', 'saved', 2, 4, 0, 9, 1)",
	} {
		if _, err := old.Write.ExecContext(t.Context(), change); err != nil {
			t.Fatalf("%s: %v", change, err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	p := must(openStore(t, path).Pauses.Get(t.Context(), "m"))(t)
	if p.Phase != PauseCancelling || p.Attempt != 3 || p.DropEnd != api.DropDst || p.StoppedAt.UnixMicro() != 7 || !p.Resuming || p.Live != nil {
		t.Errorf("move = %+v", p)
	}
	if g := p.Instances[0]; g.State != PauseSaved || g.SaveAttempt != 2 || g.SaveFrom != 0 || g.Attempt != 4 || g.Writes || g.RanAt.UnixMicro() != 9 || !g.Discard {
		t.Errorf("instance = %+v", g)
	}
}
