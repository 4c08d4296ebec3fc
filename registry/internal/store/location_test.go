// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// Two hosts that name one image of a shared pool by its path would each have a
// volume of it.
func TestAPathIntoASharedPoolIsOnePlaceForAllHosts(t *testing.T) {
	s := newCluster(t)
	image := func(n int, host, pool, name string) error {
		in := api.VolumeRegister{
			ID: id(volumeKind, 40+n), Name: name, Host: host, Status: api.VolumeAvailable,
			Location: api.Location{Path: "/nfs/two.raw", Pool: pool, Format: api.FormatRaw, SizeBytes: 512},
		}
		if pool != "" {
			in.Location.Name = "two.raw"
		}
		_, err := s.RegisterVolume(t.Context(), nobody, in)
		return err
	}
	if err := image(1, "a", "", "two1"); err != nil {
		t.Fatal(err)
	}
	for name, pool := range map[string]string{"two2": "", "two3": "nfs"} {
		if err := image(2, "b", pool, name); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("the same image in pool %q: %v, want conflict", pool, err)
		}
	}
	// A directory that only begins alike is another one, and each host's own.
	for n, host := range []string{"a", "b"} {
		in := api.VolumeRegister{
			ID: id(volumeKind, 50+n), Name: "own-" + host, Host: host, Status: api.VolumeAvailable,
			Location: api.Location{Path: "/nfs-local/x.raw", Format: api.FormatRaw, SizeBytes: 512},
		}
		if _, err := s.RegisterVolume(t.Context(), nobody, in); err != nil {
			t.Errorf("host %s: %v", host, err)
		}
	}
}
