// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The advice can be followed in the instance's state.
func TestTheAdviceToMakeAnInstanceOffCanBeFollowed(t *testing.T) {
	for state, want := range map[api.InstanceState]string{
		api.InstanceRunning: "stop it first",
		api.InstancePaused:  "stop it first",
		api.InstanceShelved: "instance shelve web",
		api.InstanceError:   "instance show web",
	} {
		got := stopAdvice("web", state)
		if stop := strings.Contains(got, "stop it first"); !strings.Contains(got, want) || stop != (want == "stop it first") {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}

// At an instance that is shelved on its host, a root volume gets its own refusal.
func TestARootVolumeIsNotReservedAtAShelvedInstance(t *testing.T) {
	s := newCluster(t)
	instanceState(api.InstanceStopped, app)(t, s)
	shelved(app)(t, s)
	_, err := s.Attachments.Reserve(t.Context(), as(hostA, 1), reserve(func(in *api.AttachmentReserve) { in.Root = true }))
	wantCode(t, err, api.CodeRootAttachForbidden, "instance shelve app")
	_, err = s.Attachments.Reserve(t.Context(), as(hostA, 1), reserve(nil))
	wantCode(t, err, api.CodeStateForbidden, "it is shelved")
}
