// SPDX-License-Identifier: Apache-2.0

package medium_test

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

func TestAPathShowsItsKindOfStorage(t *testing.T) {
	for path, want := range map[string]medium.Kind{
		"/srv/web.raw":                    medium.File,
		"/dev/vg/web":                     medium.File, // only the image shows that it is a device
		"nbd+unix:///web?socket=/run/nbd": medium.LocalExport,
		"nbd://nbd-1:10809/web":           medium.Export,
		"rbd://" + cluster + "/rbd/web":   medium.RBD,
		"nbd+unix://web":                  medium.File,
		"":                                medium.File,
	} {
		is := medium.Of(path)
		if is.Name != want.Name || is.Remote != want.Remote || is.Path != want.Path {
			t.Errorf("%q is %+v, want %+v", path, is, want)
		}
		if on := medium.On(path, true); on.Path && on.Name != medium.Device.Name || !on.Path && on.Name != is.Name {
			t.Errorf("%q on a block device is %+v", path, on)
		}
	}
}

func TestAnAddressIsCheckedByItsKind(t *testing.T) {
	for _, bad := range []string{"rbd://web", "nbd://nbd-1/web", "nbd+unix:///web"} {
		if err := medium.Of(bad).Check(bad); api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := medium.Of("web.raw").Check("web.raw"); err != nil {
		t.Error(err)
	}
}
