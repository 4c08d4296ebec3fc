// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/validate"
)

// A host's text comes from other programs, and from users of virsh. Refusing it would block the
// reported object.
func TestWhatAHostSaysIsPrintableWhereverItIsKept(t *testing.T) {
	s := newSite(t)
	migrating(t, s)
	said := func() *api.Error {
		return &api.Error{Code: api.CodeInternal, Message: "qemu-img:\n\x1b[2J", Details: map[string]any{"path": "/\u009b", "all": []any{"\u202e"}}}
	}
	const want = `{"code":"internal","message":"qemu-img:\n�[2J","details":{"all":["�"],"path":"/�"}}`
	shown := func(what string, e any) {
		t.Helper()
		if b, err := json.Marshal(e); err != nil || string(b) != want {
			t.Errorf("%s: %s, %v; want %s", what, b, err, want)
		}
	}

	in := progress(hostA, "a", move, 1)
	in.Migrations[0].Error = said()
	must(s.Reports.Receive(t.Context(), nobody, in))(t)
	live, _ := s.Progress.Of(move)
	shown("in a report", live.Error)

	needs := step(api.MigrationNeedsOperator, api.MigrationStarting)
	needs.Error = said()
	shown("of a migration", must(s.Migrations.Transition(t.Context(), nobody, move, needs))(t).Error)

	if err := postWith(t, s, as(hostA, 1), map[string]any{"\x1b": said().Details["all"]}); err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(lastEvent(t, s).Details); err != nil || string(b) != `{"posted":{"�":["�"]}}` {
		t.Errorf("an event: %s, %v", b, err)
	}
}

func TestAnErrorOfAMigrationIsBounded(t *testing.T) {
	s := newSite(t)
	migrating(t, s)
	for what, e := range map[string]api.Error{
		"error of the migration is longer": {Message: strings.Repeat("x", validate.MaxErrorMessage+1)},
		"details of the error":             {Details: map[string]any{"x": strings.Repeat("x", validate.MaxErrorDetails)}},
		"code of the error":                {Code: "\x1b"},
	} {
		needs := step(api.MigrationNeedsOperator, api.MigrationStarting)
		needs.Error = &e
		wantCode(t, second(s.Migrations.Transition(t.Context(), nobody, move, needs)), api.CodeInvalidArgument, what)
	}
}

func TestTheReasonOfALockIsOneLine(t *testing.T) {
	s := newSite(t)
	wantCode(t, second(s.Instances.Lock(t.Context(), nobody, web, api.InstanceLock{Reason: "back\nup"})), api.CodeInvalidArgument, "cannot be printed")
	if i := must(s.Instances.Lock(t.Context(), nobody, web, api.InstanceLock{Reason: "\tbackup\r\n"}))(t); i.LockReason != "backup" {
		t.Errorf("the reason is %q", i.LockReason)
	}
}
