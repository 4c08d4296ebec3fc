// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func pauseDisk(t *testing.T, s *Store) error {
	t.Helper()
	return second(s.Pauses.Register(t.Context(), nobody, "disk", api.MigrationTarget{ToPool: "slow"}, bothHere))
}

func TestNoGuestIsPausedForWhatMayNotMove(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*testing.T, *Store)
		code   api.Code
		text   string
	}{
		"a volume that no host has at an instance": {func(t *testing.T, s *Store) {
			for _, in := range []api.InstanceTransition{
				{From: api.InstanceStopped, To: api.InstanceShelved, Definition: &api.InstanceDefinition{Domain: "<domain/>"}},
				{From: api.InstanceShelved, To: api.InstanceShelvedOffloaded},
			} {
				in.Host, in.Epoch, in.OpID = hostA, 1, "op-shelve"
				must(s.Shelf.Transition(t.Context(), nobody, app, in))(t)
			}
		}, api.CodeStateForbidden, "migrate it without pause_all"},
		"a volume that is resized": {func(t *testing.T, s *Store) {
			must(s.Volumes.BeginResize(t.Context(), nobody, disk, api.VolumeResizeBegin{Host: hostA, Epoch: 1, Generation: 1, OpID: "op-r"}))(t)
		}, api.CodeVolumeNotAvailable, "it is resizing"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			inTurn(attached(nil), tc.before)(t, s)
			wantCode(t, unchanged(t, s, func() error { return pauseDisk(t, s) }), tc.code, tc.text)
		})
	}
}

func TestNoGuestIsPausedThatRunsOnAnotherHost(t *testing.T) {
	s := newCluster(t)
	attached(nil)(t, s)
	for _, state := range []api.InstanceState{api.InstanceRunning, api.InstancePaused} {
		runs(t, s, hostB, "b", app, state)
		wantCode(t, unchanged(t, s, func() error { return pauseDisk(t, s) }), api.CodeStateForbidden, "runs on host b")
		if i := must(s.Instances.Get(t.Context(), app, everyone))(t); !strings.Contains(i.Note, "runs on host b") {
			t.Errorf("the note is %q", i.Note)
		}
	}
	runs(t, s, hostB, "b", app, api.InstanceStopped)
	if err := pauseDisk(t, s); err != nil {
		t.Errorf("it was stopped there: %v", err)
	}
}
