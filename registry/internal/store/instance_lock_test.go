// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/validate"
)

// lockedByMove makes a migration lock web.
func lockedByMove(t *testing.T, s *Store) {
	t.Helper()
	must(Mutate(t.Context(), s.DB, nobody, "test", nil, func(ctx context.Context, tx *Tx) (struct{}, error) {
		return struct{}{}, tx.LockInstance(ctx, web, "its volume moves", move)
	}))(t)
}

func TestALockedInstanceSaysWhyAndIsUnlocked(t *testing.T) {
	s := newCluster(t)
	i := must(s.Instances.Lock(t.Context(), as(hostA, 1), "web", api.InstanceLock{Reason: "audit"}))(t)
	if !i.Locked || i.LockReason != "audit" || i.LockedBy != "" {
		t.Errorf("locked = %+v", i)
	}
	if e := lastEvent(t, s); e.What != "instance.lock" || e.Details["reason"] != "audit" || e.Object != "instance/"+web {
		t.Errorf("event = %+v", e)
	}
	if i := must(s.Instances.Unlock(t.Context(), nobody, "web"))(t); i.Locked || i.LockReason != "" {
		t.Errorf("unlocked = %+v", i)
	}
	if e := lastEvent(t, s); e.What != "instance.unlock" || e.Details["reason"] != "audit" {
		t.Errorf("event = %+v", e)
	}
}

func TestTheLockOfAMigrationIsLiftedByItAlone(t *testing.T) {
	s := newCluster(t)
	lockedByMove(t, s)
	if i := must(s.Instances.Get(t.Context(), web, everyone))(t); !i.Locked || i.LockedBy != move {
		t.Errorf("locked = %+v", i)
	}
	wantCode(t, unchanged(t, s, func() error { return second(s.Instances.Unlock(t.Context(), nobody, "web")) }), api.CodeInstanceLocked, "migration "+move+" holds it")
	unlock := func(op string) {
		t.Helper()
		must(Mutate(t.Context(), s.DB, nobody, "test", op, func(ctx context.Context, tx *Tx) (struct{}, error) {
			return struct{}{}, tx.UnlockInstance(ctx, web, op)
		}))(t)
	}
	for _, another := range []string{"", id(migrationKind, 7)} {
		if unlock(another); !must(s.Instances.Get(t.Context(), web, everyone))(t).Locked {
			t.Errorf("%q lifted the lock of %s", another, move)
		}
	}
	if unlock(move); must(s.Instances.Get(t.Context(), web, everyone))(t).Locked {
		t.Error("the migration did not lift its lock")
	}
}

func TestWhatALockedInstanceRefuses(t *testing.T) {
	lock := func(call Call, reason string) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error {
			return second(s.Instances.Lock(t.Context(), call, "web", api.InstanceLock{Reason: reason}))
		}
	}
	detaching := func(t *testing.T, s *Store) error {
		return second(s.Attachments.Transition(t.Context(), nobody, rootAt, attachmentStep(api.AttachmentDetaching, api.AttachmentAttached)))
	}
	forgetting := func(t *testing.T, s *Store) error {
		return second(s.Instances.Forget(t.Context(), nobody, "web", Forget{}))
	}
	migrating := func(t *testing.T, s *Store) error {
		return second(s.Migrations.Register(t.Context(), nobody, rootMigration()))
	}
	other := func(t *testing.T, s *Store) error {
		in := rootMigration()
		in.ID = id(migrationKind, 7)
		return second(s.Migrations.Register(t.Context(), nobody, in))
	}
	checkClusterRefusals(t, map[string]refusal{
		"another lock":           {lockedInstance(web), lock(nobody, "again"), api.CodeInstanceLocked, "cannot lock instance web: it is locked (audit)"},
		"detach":                 {lockedInstance(web), detaching, api.CodeInstanceLocked, "cannot detach a volume from instance web"},
		"attach":                 {lockedInstance(web), reserving(atWeb), api.CodeInstanceLocked, "cannot attach a volume to instance web"},
		"forget":                 {lockedInstance(web), forgetting, api.CodeInstanceLocked, "cannot forget instance web"},
		"forget under a move":    {lockedByMove, forgetting, api.CodeInstanceLocked, "migration " + move},
		"another volume's move":  {lockedByMove, other, api.CodeInstanceLocked, "cannot migrate a volume of instance web"},
		"lock of another host's": {nil, lock(as(hostB, 1), "mine"), api.CodeNotYourHost, "cannot lock instance web"},
		"no reason":              {nil, lock(nobody, " "), api.CodeInvalidArgument, "reason is missing"},
		"a long reason":          {nil, lock(nobody, strings.Repeat("x", validate.MaxText+1)), api.CodeInvalidArgument, "reason"},
		"unlock of none":         {nil, func(t *testing.T, s *Store) error { return second(s.Instances.Unlock(t.Context(), nobody, "web")) }, api.CodeStateForbidden, "it is not locked"},
	})
	t.Run("its volumes move on", func(t *testing.T) {
		s := newCluster(t)
		lockedInstance(web)(t, s)
		if err := migrating(t, s); err != nil {
			t.Error(err)
		}
	})
}
