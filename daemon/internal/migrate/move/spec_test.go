// SPDX-License-Identifier: Apache-2.0

package move_test

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

func TestASpecHasTheKindsOfStorageOfItsEnds(t *testing.T) {
	rbd := medium.RBDImage{Cluster: "5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11", Pool: "rbd", Name: "web"}.URI()
	for _, c := range []struct {
		path  string
		block bool
		want  medium.Kind
	}{
		{"/srv/web.raw", false, medium.File},
		{"/dev/vg/web", true, medium.Device},
		{"nbd+unix:///web?socket=/run/nbd", false, medium.LocalExport},
		{"nbd://nbd-1:10809/web", false, medium.Export},
		{rbd, false, medium.RBD},
	} {
		at := api.Location{Path: c.path, Format: api.FormatRaw, SizeBytes: 1 << 20}
		s := &move.Spec{Src: at, SrcBlock: c.block, Dst: at, DstBlock: c.block, CreateDst: true}
		for end, is := range map[string]medium.Kind{"src": s.SrcKind(), "dst": s.DstKind(), "to dst": move.ToDst.Kind(s), "to src": move.ToSrc.Kind(s)} {
			if is.Name != c.want.Name || is.Remote != c.want.Remote || is.Filesystem != c.want.Filesystem {
				t.Errorf("%s at %s is %+v, want %+v", end, c.path, is, c.want)
			}
		}
		if s.CreatesFile() != c.want.Filesystem {
			t.Errorf("%s: it makes a file: %t", c.path, s.CreatesFile())
		}
	}
}

func TestASpecKnowsHowItsDestinationComesToBe(t *testing.T) {
	for want, s := range map[move.DstOrigin]*move.Spec{
		move.DstExists:    {},
		move.DstMade:      {CreateDst: true},
		move.DstConnected: {CreateDst: true, ConnectDst: true},
	} {
		if is := s.DstOrigin(); is != want || s.MakesDst() != (want != move.DstExists) {
			t.Errorf("%+v has the origin %d, want %d", s, is, want)
		}
	}
	if s := (&move.Spec{DstDeviceBytes: 1 << 20}); s.DstOrigin() != move.DstExists || !s.MakesDst() {
		t.Error("the qcow2 image on an existing device is not made")
	}
}

func TestOnlyWholeImagesWithoutAPassphraseAreConverted(t *testing.T) {
	whole := api.Location{Path: "/srv/web.raw", Format: api.FormatRaw, SizeBytes: 1 << 20}
	slice, secret := whole, whole
	slice.ImageBytes, secret.LUKSSecret = 2<<20, "2f0d5a3c-0000-4000-8000-000000000000"
	for _, c := range []struct {
		src, dst api.Location
		want     bool
	}{{whole, whole, true}, {slice, whole, false}, {whole, slice, false}, {secret, secret, false}} {
		if s := (&move.Spec{Src: c.src, Dst: c.dst}); s.Convertible() != c.want {
			t.Errorf("from %+v to %+v: %t", c.src, c.dst, s.Convertible())
		}
	}
}
