// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// checkHeld compares the writer's cached attachments with the stored ones, and returns their ids.
func checkHeld(t *testing.T, s *Store) []string {
	t.Helper()
	var ids []string
	if err := s.ledger.Submit(t.Context(), func(ctx context.Context, w *ledger.Tx) error {
		cache := s.cache.attachments
		held := maps.Clone(cache)
		tx := s.newTx(s.ledger.NewChange(w, ledger.Request{}), nobody)
		for id, got := range held {
			clear(cache)
			stored, err := tx.attachmentRowByID(ctx, id)
			if err != nil {
				t.Errorf("the attachment %s is held and cannot be read: %v", id, err)
				continue
			}
			if diff := cmp.Diff(stored, got, cmp.AllowUnexported(attachmentRow{}, instanceLock{})); diff != "" {
				t.Errorf("the attachment %s is held as it is not stored (-stored +held):\n%s", id, diff)
			}
		}
		clear(cache)
		maps.Copy(cache, held)
		ids = slices.Sorted(maps.Keys(held))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestAttachmentsThatTheWriterHoldsAreAsStored(t *testing.T) {
	s := newCluster(t)
	transition := func(to api.AttachmentState, from ...api.AttachmentState) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			t.Helper()
			must(s.Attachments.Transition(t.Context(), nobody, first, attachmentStep(to, from...)))(t)
		}
	}
	otherName := "another"
	for _, step := range []struct {
		what string
		do   func(*testing.T, *Store)
		held []string
	}{
		{"reserve", reserved(nil), []string{first}},
		{"connect", transition(api.AttachmentAttaching, api.AttachmentReserved), []string{first}},
		{"reserve of another", reserved(atWeb), []string{first, next}},
		{"complete", transition(api.AttachmentAttached, api.AttachmentAttaching), []string{first, next}},
		{"refusal after nothing was written", func(t *testing.T, s *Store) {
			t.Helper()
			wantCode(t, second(s.Attachments.Transition(t.Context(), nobody, first, attachmentStep(api.AttachmentAttaching, api.AttachmentReserved))), api.CodeConflict, "attached")
		}, nil},
		{"begin", transition(api.AttachmentDetaching, api.AttachmentAttached), []string{first}},
		{"state of the instance", instanceState(api.InstanceStopped, app), nil},
		{"giving up", transition(api.AttachmentAttached, api.AttachmentDetaching), []string{first}},
		{"name of the volume", func(t *testing.T, s *Store) {
			t.Helper()
			must(s.Volumes.Update(t.Context(), nobody, disk, api.VolumeUpdate{Name: &otherName}))(t)
		}, nil},
		{"error", transition(api.AttachmentError, api.AttachmentAttached), []string{first}},
		{"release of another", func(t *testing.T, s *Store) {
			t.Helper()
			must(s.Attachments.Release(t.Context(), nobody, next, release(true)))(t)
		}, []string{first}},
		{"attached again", transition(api.AttachmentAttached, api.AttachmentError), []string{first}},
		{"migration", func(t *testing.T, s *Store) {
			t.Helper()
			m := dataMigration()
			m.VolumeID, m.SrcAttachmentID, m.DstAttachmentID = disk, first, id(attachmentKind, 9)
			must(s.Migrations.Register(t.Context(), nobody, m))(t)
		}, nil},
	} {
		step.do(t, s)
		if held := checkHeld(t, s); !slices.Equal(held, step.held) {
			t.Errorf("after %s the writer holds %q, want %q", step.what, held, step.held)
		}
	}
}

func TestNoMoreAttachmentsAreHeldThanThereIsRoomFor(t *testing.T) {
	c := attachmentCache{}
	for n := range maxAttachments + 1 {
		c.put(attachmentRow{Attachment: api.Attachment{ID: id(attachmentKind, n)}})
	}
	if len(c) != 1 {
		t.Errorf("%d attachments are held, want the last", len(c))
	}
}

func TestWhatTheWriterHoldsOfUnheldAttachmentsIsAsStored(t *testing.T) {
	s := newCluster(t)
	inTurn(attached(nil), offloaded(app))(t, s)
	look := func() {
		t.Helper()
		if err := s.ledger.Submit(t.Context(), func(ctx context.Context, w *ledger.Tx) error {
			h, err := s.newTx(s.ledger.NewChange(w, ledger.Request{}), nobody).attachmentRow(ctx, first)
			if err == nil && h.hostID+h.Host != "" {
				t.Errorf("held at host %s %s, and no host has it", h.hostID, h.Host)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		checkHeld(t, s)
	}
	look()
	must(Mutate(t.Context(), s.DB, nobody, "test.attach", nil, func(ctx context.Context, tx *Tx) (api.Attachment, error) {
		return tx.AttachUnheld(ctx, api.AttachmentReserve{ID: next, VolumeID: data, InstanceID: app, Device: "vdc", Mode: api.ModeRW, Generation: 1})
	}))(t)
	look()
	must(Mutate(t.Context(), s.DB, nobody, "test.detach", nil, func(ctx context.Context, tx *Tx) (api.Attachment, error) {
		return tx.DetachUnheld(ctx, first, nil)
	}))(t)
	checkHeld(t, s)
}
