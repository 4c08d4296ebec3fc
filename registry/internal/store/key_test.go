// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// keyed returns a call with the one key of these tests.
func keyed(call Call) Call {
	call.Key = "op.reserve"
	return call
}

// The ids of a host's ops derive from values that another host may know.
func TestAHostsKeysAreItsOwn(t *testing.T) {
	t.Run("used before", func(t *testing.T) {
		s := newCluster(t)
		must(s.Trail.Post(t.Context(), keyed(as(hostB, 1)), api.EventPost{What: "mine"}))(t)
		must(s.Attachments.Reserve(t.Context(), keyed(as(hostA, 1)), reserve(nil)))(t)
	})
	t.Run("used again", func(t *testing.T) {
		s := newCluster(t)
		must(s.Volumes.Register(t.Context(), as(hostA, 1), api.VolumeRegister{ID: id(volumeKind, 9), Name: "secret", Host: "a", Status: api.VolumeAvailable, Location: at("/fast/secret")}))(t)
		must(s.Volumes.Forget(t.Context(), keyed(as(hostA, 1)), id(volumeKind, 9)))(t)
		if v, err := s.Volumes.Forget(t.Context(), keyed(as(hostB, 1)), id(volumeKind, 9)); api.CodeOf(err) != api.CodeNotFound || v.Name != "" {
			t.Errorf("the other host was answered %+v, %v", v, err)
		}
		if v := must(s.Volumes.Forget(t.Context(), keyed(as(hostA, 1)), id(volumeKind, 9)))(t); v.Name != "secret" {
			t.Errorf("the answer that was lost is %+v", v)
		}
	})
	t.Run("an operator's", func(t *testing.T) {
		s := newCluster(t)
		must(s.Policies.Set(t.Context(), keyed(nobody), api.PolicyMultiattach, api.PolicyUpdate{Enabled: true}))(t)
		must(s.Attachments.Reserve(t.Context(), keyed(as(hostA, 1)), reserve(nil)))(t)
	})
}
