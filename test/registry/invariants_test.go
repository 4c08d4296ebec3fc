// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"iter"
	"os"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// reads asks until it is answered, for what changes nothing.
func reads[T any](t *testing.T, read func(context.Context) (T, error)) T {
	t.Helper()
	v, _, err := insist(t.Context(), read)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// checkInvariants looks at all that can be read of a registry of which nothing is
// asked meanwhile: whatever was interrupted, all of it was done or nothing.
func (c *cluster) checkInvariants(t *testing.T) {
	t.Helper()
	volumes := reads(t, c.local.Volumes)
	migrations := reads(t, func(ctx context.Context) ([]api.Migration, error) { return c.local.Migrations(ctx, "", false) })
	attachments := reads(t, func(ctx context.Context) ([]api.Attachment, error) { return c.local.Attachments(ctx, "", "") })
	moves := map[string]api.Migration{}
	for _, m := range migrations {
		moves[m.ID] = m
	}
	in := 0
	for _, v := range volumes {
		in += len(v.Attachments)
		checkVolume(t, v, moves)
		delete(moves, v.MigrationID)
	}
	if in != len(attachments) {
		t.Errorf("volumes have %d attachments and %d are listed", in, len(attachments))
	}
	for id := range moves {
		t.Errorf("migration %s is open and locks no volume", id)
	}
	c.checkTrail(t)
}

// checkVolume says what is wrong with one volume and its migration.
func checkVolume(t *testing.T, v api.Volume, moves map[string]api.Migration) {
	t.Helper()
	var users, reserved []api.Attachment
	for _, a := range v.Attachments {
		if a.Location.Path == v.Location.Path {
			users = append(users, a)
		} else {
			reserved = append(reserved, a)
		}
	}
	want := api.VolumeAvailable
	for _, a := range users {
		if want == api.VolumeAvailable {
			want = api.VolumeReserved
		}
		if a.State != api.AttachmentReserved {
			want = api.VolumeInUse
		}
	}
	if v.Status != want && (v.Status != api.VolumeDeleting || len(v.Attachments) > 0) {
		t.Errorf("volume %s is %s with %+v", v.ID, v.Status, v.Attachments)
	}
	if len(users) > 1 && !v.Multiattach {
		t.Errorf("volume %s is not multiattach and has %+v", v.ID, users)
	}
	m, locked := moves[v.MigrationID]
	switch {
	case v.MigrationID != "" && (!locked || m.VolumeID != v.ID):
		t.Errorf("volume %s is locked by migration %s, which is %+v", v.ID, v.MigrationID, m)
	case !locked && len(reserved) > 0:
		t.Errorf("volume %s has reservations of no migration: %+v", v.ID, reserved)
	case locked && m.SrcAttachmentID == "" && len(v.Attachments) > 0:
		t.Errorf("volume %s has %+v, and its migration %+v has none", v.ID, v.Attachments, m)
	case locked && m.SrcAttachmentID != "":
		if len(users) != 1 || len(reserved) != 1 || users[0].ID != m.SrcAttachmentID || reserved[0].ID != m.DstAttachmentID ||
			reserved[0].State != api.AttachmentReserved || reserved[0].Location.Path != m.Dst.Path {
			t.Errorf("volume %s has %+v, which is not what its migration %+v holds", v.ID, v.Attachments, m)
		}
	}
}

// checkTrail reports whether the audit trail has no gap, and whether the registry
// has found its chain whole at every start.
func (c *cluster) checkTrail(t *testing.T) {
	t.Helper()
	var last int64
	for e := range c.trail(t) {
		if e.Seq != last+1 {
			t.Fatalf("event %d comes after event %d", e.Seq, last)
		}
		last = e.Seq
	}
	log := string(must(os.ReadFile(c.Log()))(t))
	if n := strings.Count(log, "the audit trail is not what was written"); n > 0 || !strings.Contains(log, "audit trail verified") {
		t.Errorf("the audit trail was found broken at %d starts", n)
	}
	for _, word := range []string{"panic", "internal error", "database is locked"} {
		if strings.Contains(log, word) {
			t.Errorf("the log of the registry has %q", word)
		}
	}
}

// trail yields all events.
func (c *cluster) trail(t *testing.T) iter.Seq[api.Event] {
	t.Helper()
	return func(yield func(api.Event) bool) {
		for since := int64(0); ; {
			page := reads(t, func(ctx context.Context) ([]api.Event, error) { return c.local.Events(ctx, since) })
			for _, e := range page {
				if !yield(e) {
					return
				}
				since = e.Seq
			}
			if len(page) == 0 {
				return
			}
		}
	}
}
