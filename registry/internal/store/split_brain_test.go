// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// runsAt makes a host report an instance in this state.
func runsAt(t *testing.T, s *Store, host, name, instance string, state api.InstanceState) {
	t.Helper()
	in := reportOf(host, name, 1)
	in.Instances = []api.InstanceReport{{ID: instance, State: state}}
	must(s.Reports.Receive(t.Context(), nobody, in))(t)
}

func TestNothingBeginsAtAnInstanceThatRunsOnAnotherHost(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*testing.T, *Store)
		at     string
		do     func(*testing.T, *Store) error
	}{
		"attach": {nil, app, func(t *testing.T, s *Store) error {
			return second(s.Attachments.Reserve(t.Context(), nobody, reserve(nil)))
		}},
		"detach": {func(t *testing.T, s *Store) { runsAt(t, s, hostA, "a", web, api.InstanceStopped) }, web, func(t *testing.T, s *Store) error {
			return second(s.Attachments.Transition(t.Context(), nobody, rootAt, attachmentStep(api.AttachmentDetaching, api.AttachmentAttached)))
		}},
		"migrate": {nil, web, migrate(func(*api.MigrationRegister) {})},
		"migrate of what is shelved": {offloaded(web), web, func(t *testing.T, s *Store) error {
			in := rootMigration()
			in.SrcAttachmentID, in.DstAttachmentID, in.Method = "", "", "offline"
			return second(s.Migrations.Register(t.Context(), nobody, in))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			if tc.before != nil {
				tc.before(t, s)
			}
			for _, state := range []api.InstanceState{api.InstanceRunning, api.InstancePaused} {
				runsAt(t, s, hostB, "b", tc.at, state)
				wantCode(t, unchanged(t, s, func() error { return tc.do(t, s) }), api.CodeStateForbidden, "runs on host b")
				if i := must(s.Instances.Get(t.Context(), tc.at, everyone))(t); !strings.Contains(i.Note, "runs on host b") {
					t.Errorf("the note is %q", i.Note)
				}
			}
			runsAt(t, s, hostB, "b", tc.at, api.InstanceStopped)
			if err := tc.do(t, s); err != nil {
				t.Errorf("it was stopped there: %v", err)
			}
		})
	}
}

func TestAVolumeOfAFencedHostIsNotFreedWhileItsGuestRunsElsewhere(t *testing.T) {
	s := newCluster(t)
	runsAt(t, s, hostB, "b", web, api.InstanceRunning)
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	force := func() error { return second(s.Attachments.ForceDelete(t.Context(), nobody, rootAt)) }
	wantCode(t, force(), api.CodeStateForbidden, "runs on host b")
	must(s.Hosts.Fence(t.Context(), nobody, "b", cut))(t)
	if err := force(); err != nil {
		t.Errorf("both hosts are fenced: %v", err)
	}
}

func TestWhoRunsAnInstanceThatNobodyHasMayTakeIt(t *testing.T) {
	s := newCluster(t)
	fresh := id(instanceKind, 9)
	runsAt(t, s, hostA, "a", fresh, api.InstanceRunning)
	must(s.Instances.Register(t.Context(), nobody, api.InstanceRegister{ID: fresh, Name: "fresh", Host: "a", State: api.InstanceRunning}))(t)
	if i := must(s.Instances.Get(t.Context(), fresh, everyone))(t); i.Note != "" {
		t.Errorf("the note is %q", i.Note)
	}
	in := reserve(func(in *api.AttachmentReserve) { in.InstanceID = fresh })
	must(s.Attachments.Reserve(t.Context(), nobody, in))(t)
}

func TestOneThatIsTakenWhereItDoesNotRunIsStillWrongThere(t *testing.T) {
	s := newCluster(t)
	fresh := id(instanceKind, 9)
	runsAt(t, s, hostB, "b", fresh, api.InstanceRunning)
	must(s.Instances.Register(t.Context(), nobody, api.InstanceRegister{ID: fresh, Name: "fresh", Host: "a", State: api.InstanceStopped}))(t)
	in := reserve(func(in *api.AttachmentReserve) { in.InstanceID = fresh })
	wantCode(t, second(s.Attachments.Reserve(t.Context(), nobody, in)), api.CodeStateForbidden, "runs on host b")
}
