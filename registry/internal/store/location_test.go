// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// By path, two hosts could each register a volume for one image in a shared pool.
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
		_, err := s.Volumes.Register(t.Context(), nobody, in)
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
	// A directory with the same prefix is another directory, and local to each host.
	for n, host := range []string{"a", "b"} {
		in := api.VolumeRegister{
			ID: id(volumeKind, 50+n), Name: "own-" + host, Host: host, Status: api.VolumeAvailable,
			Location: api.Location{Path: "/nfs-local/x.raw", Format: api.FormatRaw, SizeBytes: 512},
		}
		if _, err := s.Volumes.Register(t.Context(), nobody, in); err != nil {
			t.Errorf("host %s: %v", host, err)
		}
	}
}

// mounted makes host b report its own pools instead of the cluster's.
func mounted(t *testing.T, s *Store, pools ...api.Pool) {
	t.Helper()
	for i := range pools {
		pools[i].Active = true
	}
	must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: id(hostKind, 2), Name: "b", BootID: "first", Epoch: 1, Pools: pools}))(t)
}

func registerAt(t *testing.T, s *Store, n int, host string, l api.Location) (api.Volume, error) {
	t.Helper()
	l.Format, l.SizeBytes = api.FormatRaw, 512
	return s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{
		ID: id(volumeKind, 70+n), Name: "image-" + id(volumeKind, 70+n)[30:], Host: host, Status: api.VolumeAvailable, Location: l,
	})
}

// Each host names the image by its own path.
func TestTwoMountPointsOfOneExportAreOnePlace(t *testing.T) {
	byPool := api.Location{Pool: "nfs", Name: "x.raw", Path: "/nfs/x.raw"}
	for name, first := range map[string]api.Location{"by its pool": byPool, "by its path": {Path: "/nfs/x.raw"}} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			mounted(t, s, api.Pool{Name: "nfs", Type: "netfs", Path: "/mnt/nfs", Shared: true})
			v, err := registerAt(t, s, 1, "a", first)
			if err != nil || v.Location.Pool != "nfs" || v.Location.Name != "x.raw" {
				t.Fatalf("registered %+v (%v), want it in pool nfs", v.Location, err)
			}
			_, err = registerAt(t, s, 2, "b", api.Location{Path: "/mnt/nfs/x.raw"})
			wantCode(t, err, api.CodeConflict, "is taken by volume image")
			if _, err = registerAt(t, s, 3, "b", api.Location{Path: "/mnt/nfs/y.raw"}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The local pool has the same name and path as the shared one.
func TestAPoolOfOnesOwnIsNotTheSharedOne(t *testing.T) {
	l := api.Location{Pool: "nfs", Name: "x.raw", Path: "/nfs/x.raw"}
	for name, order := range map[string][]string{"the shared one first": {"a", "b"}, "its own first": {"b", "a"}} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			mounted(t, s, api.Pool{Name: "nfs", Type: "dir", Path: "/nfs"})
			for n, host := range order {
				if _, err := registerAt(t, s, n, host, l); err != nil {
					t.Errorf("host %s: %v", host, err)
				}
			}
			_, err := registerAt(t, s, 3, "b", api.Location{Path: "/nfs/x.raw"})
			wantCode(t, err, api.CodeConflict, "is taken by")
		})
	}
}

// The pool of one disk's partitions has the directory /dev, which has all devices of the host; and
// libvirt does not know thin volumes.
func TestADeviceBesideThoseOfAPoolIsInNoPool(t *testing.T) {
	s := newCluster(t)
	before := must(registerAt(t, s, 1, "b", api.Location{Path: "/dev/sdx"}))(t)
	mounted(t, s, append(clusterPools(), api.Pool{Name: "partitions", Type: "disk", Path: "/dev"}, api.Pool{Name: "lvm", Type: "logical", Path: "/dev/vg"})...)
	after := must(registerAt(t, s, 2, "b", api.Location{Path: "/dev/sdy"}))(t)
	thin := must(registerAt(t, s, 3, "b", api.Location{Path: "/dev/vg/thin"}))(t)
	for _, v := range []api.Volume{before, after, thin} {
		if v = must(s.Volumes.Get(t.Context(), v.ID, Viewer{}))(t); v.Location.Pool != "" {
			t.Errorf("it is at %+v, want it in no pool", v.Location)
		}
	}
}

// A drain looks for the volumes in the pool.
func TestAVolumeThatIsOlderThanItsPoolIsInIt(t *testing.T) {
	s := newCluster(t)
	in := must(registerAt(t, s, 1, "b", api.Location{Path: "/late/x.raw"}))(t)
	below := must(registerAt(t, s, 2, "b", api.Location{Path: "/late/below/x.raw"}))(t)
	if in.Location.Pool != "" {
		t.Fatalf("it is in pool %s", in.Location.Pool)
	}
	mounted(t, s, append(clusterPools(), api.Pool{Name: "late", Type: "dir", Path: "/late"})...)
	if v := must(s.Volumes.Get(t.Context(), in.ID, Viewer{}))(t); v.Location.Pool != "late" || v.Location.Name != "x.raw" {
		t.Errorf("it is at %+v, want pool late", v.Location)
	}
	if v := must(s.Volumes.Get(t.Context(), below.ID, Viewer{}))(t); v.Location.Pool != "" {
		t.Errorf("what is in another directory is at %+v", v.Location)
	}
}

// A server at an address, or a cluster, has the same bytes for all hosts; a socket is local to each
// host.
func TestAnExportOverTCPAndAnRBDImageAreOnePlaceForAllHosts(t *testing.T) {
	s := newCluster(t)
	register := func(n int, host, path string) error {
		in := api.VolumeRegister{
			ID: id(volumeKind, 60+n), Name: fmt.Sprint("export", n), Host: host, Status: api.VolumeAvailable,
			Location: api.Location{Path: path, Format: api.FormatRaw, SizeBytes: 512},
		}
		_, err := s.Volumes.Register(t.Context(), nobody, in)
		return err
	}
	for n, c := range []struct {
		host, path string
		want       api.Code
	}{
		{"a", "nbd://nbd.example:10809/web", ""},
		{"b", "nbd://nbd.example:10809/web", api.CodeConflict},
		{"a", "nbd://nbd.example:10809/web", api.CodeConflict},
		{"b", "nbd://nbd.example:10809/db", ""},
		{"a", "nbd+unix:///web?socket=/run/s", ""},
		{"b", "nbd+unix:///web?socket=/run/s", ""},
		{"a", "rbd://5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web", ""},
		{"b", "rbd://5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web", api.CodeConflict},
		{"b", "rbd://00000000-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web", ""}, // in another cluster
	} {
		if err := register(n, c.host, c.path); api.CodeOf(err) != c.want {
			t.Errorf("%s on host %s: %v, want %q", c.path, c.host, err, c.want)
		}
	}
}
