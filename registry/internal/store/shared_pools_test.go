// SPDX-License-Identifier: Apache-2.0

package store

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// sharers makes hosts a and b report the pool nfs as shared.
func sharers(t *testing.T, s *Store) {
	t.Helper()
	for n, name := range []string{"a", "b"} {
		in := reportOf(id(hostKind, n+1), name, 1)
		in.Pools = []api.Pool{{Name: "nfs", Type: "dir", Path: "/nfs", Shared: true}}
		must(s.Reports.Receive(t.Context(), nobody, in))(t)
	}
}

func sharedOn(t *testing.T, s *Store) (hosts []string) {
	t.Helper()
	for _, p := range must(s.Pools.All(t.Context()))(t) {
		if p.Shared {
			hosts = append(hosts, p.Host)
		}
	}
	return hosts
}

func TestAHostSharesAPoolIfTheSiteSaysSoOfThatHost(t *testing.T) {
	for name, tc := range map[string]struct {
		hosts []string
		want  []string
	}{
		"by name":     {[]string{"a"}, []string{"a"}},
		"by id":       {[]string{hostB}, []string{"b"}},
		"both":        {[]string{"a", "b"}, []string{"a", "b"}},
		"another one": {[]string{"c"}, nil},
		"any":         {nil, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, filepath.Join(t.TempDir(), "registry.db"), Options{SharedPools: map[string][]string{"nfs": tc.hosts}})
			sharers(t, s)
			if diff := cmp.Diff(tc.want, sharedOn(t, s)); diff != "" {
				t.Errorf("shared on (-want +got):\n%s", diff)
			}
		})
	}
}

// Otherwise a host could keep a false report by not reporting its pools again.
func TestWhatAHostSharesEndsWithTheSitesWordAndNotWithItsNextReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	s := must(Open(t.Context(), path, Options{}))(t)
	sharers(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openWith(t, path, Options{SharedPools: map[string][]string{"nfs": {"a"}}})
	if diff := cmp.Diff([]string{"a"}, sharedOn(t, s)); diff != "" {
		t.Errorf("shared on (-want +got):\n%s", diff)
	}
}

// A host that only reaches a volume must not rename, forget or re-register it.
func TestAHostChangesAVolumeInItsCareAlone(t *testing.T) {
	s := newSite(t)
	common, other := id(volumeKind, 3), "renamed"
	in := api.VolumeRegister{ID: common, Name: "common", Status: api.VolumeAvailable, Host: hostA, Location: at("/nfs/common")}
	must(s.Volumes.Register(t.Context(), nobody, in))(t)
	calls := map[string]func(Call) error{
		"rename": func(c Call) error {
			return second(s.Volumes.Update(t.Context(), c, common, api.VolumeUpdate{Name: &other}))
		},
		"claim": func(c Call) error {
			return second(s.Volumes.Transition(t.Context(), c, common, api.VolumeTransition{From: api.VolumeAvailable, To: api.VolumeDeleting}))
		},
		"forget": func(c Call) error { return second(s.Volumes.Forget(t.Context(), c, common)) },
	}
	for name, call := range calls {
		wantCode(t, unchanged(t, s, func() error { return call(as(hostB, 1)) }), api.CodeNotYourHost, "in the care of host a")
		if t.Failed() {
			t.Fatal(name)
		}
	}
	for _, name := range []string{"rename", "claim", "forget"} {
		if err := calls[name](as(hostA, 1)); err != nil {
			t.Errorf("%s by its own host: %v", name, err)
		}
	}
}
