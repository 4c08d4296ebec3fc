// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// socket makes a socket, and a link to it.
func socket(t *testing.T) (path, link string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	link = path + "-link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	return path, link
}

const image = "rbd://5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web"

func TestAnRBDImageHasToBeOfAListedCluster(t *testing.T) {
	rules := location.Rules{AllowedPaths: []string{"/"}, RBD: rbd.Clusters{"5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11": {}}}
	for uri, want := range map[string]api.Code{
		image: "", "rbd://00000000-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web": api.CodePermissionDenied, "rbd://rbd/web": api.CodeInvalidArgument,
	} {
		if err := rules.CheckPath(t.Context(), uri); api.CodeOf(err) != want {
			t.Errorf("%s: %v", uri, err)
		}
	}
	if d := location.Directory(image); d != "/" {
		t.Errorf("QEMU passes %s on its way to it", d)
	}
}

func TestAnExportIsTheSameBySocketAndName(t *testing.T) {
	path, link := socket(t)
	other, _ := socket(t)
	uri := func(name, socket string) string { return medium.NBDExport{Name: name, Socket: socket}.URI() }
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{uri("web", path), uri("web", path), true},
		{uri("web", path), uri("web", link), true},
		{uri("web", path), uri("db", path), false},
		{uri("web", path), uri("web", other), false},
		{uri("web", path), path, false},
		{path, uri("", path), false},
		{uri("web", "/no/such/socket"), uri("web", path), false},
		{"nbd://h:1/web", "nbd://h:1/web", true},
		{"nbd://h:1/web", "nbd://h:2/web", false},
		{"nbd://h:1/web", "nbd://h:1/db", false},
		{"nbd://h:1/web", uri("web", path), false},
		{uri("nbd://h:1/web", path), "nbd://h:1/web", false},
		{"nbd://h:1/web", path, false},
		{image, image, true},
		{image, image + "2", false},
		{image, "rbd://00000000-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web", false},
		{image, "nbd://h:1/web", false},
		{image, path, false},
	} {
		if same, err := location.SameImage(c.a, c.b); same != c.same || err != nil {
			t.Errorf("%s and %s: %v, %v", c.a, c.b, same, err)
		}
	}
}

func TestTheSocketOfAnExportHasToBeInAnAllowedPlace(t *testing.T) {
	path, link := socket(t)
	uri := medium.NBDExport{Name: "web", Socket: path}.URI()
	for allowed, want := range map[string]api.Code{
		filepath.Dir(path): "", "/srv": api.CodePermissionDenied, "/dev": api.CodePermissionDenied,
	} {
		err := location.Rules{AllowedPaths: []string{allowed}}.CheckPath(t.Context(), uri)
		if api.CodeOf(err) != want {
			t.Errorf("with %s allowed: %v", allowed, err)
		}
	}
	outside := filepath.Join(t.TempDir(), "s")
	if err := os.Symlink(link, outside); err != nil {
		t.Fatal(err)
	}
	uri = medium.NBDExport{Socket: outside}.URI()
	if err := (location.Rules{AllowedPaths: []string{filepath.Dir(path)}}).CheckPath(t.Context(), uri); api.CodeOf(err) != "" {
		t.Errorf("a link into an allowed place: %v", err)
	}
	if err := (location.Rules{AllowedPaths: []string{filepath.Dir(outside)}}).CheckPath(t.Context(), uri); err == nil {
		t.Error("a link in an allowed place to a socket elsewhere is taken")
	}
}

func TestAServerOverTCPHasToBeListedWithItsPort(t *testing.T) {
	rules := location.Rules{NBDServers: []string{"nbd.example:10809"}, AllowedPaths: []string{"/"}}
	for uri, want := range map[string]api.Code{
		"nbd://nbd.example:10809/web": "", "nbd://nbd.example:22/web": api.CodePermissionDenied, "nbd://nbd:10809/web": api.CodePermissionDenied,
		"nbd://nbd.example/web": api.CodeInvalidArgument,
	} {
		if err := rules.CheckPath(t.Context(), uri); api.CodeOf(err) != want {
			t.Errorf("%s: %v", uri, err)
		}
	}
	if err := (location.Rules{AllowedPaths: []string{"/"}}).CheckPath(t.Context(), "nbd://nbd.example:10809/web"); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("where none is listed: %v", err)
	}
	if d := location.Directory("nbd://nbd.example:10809/web"); d != "/" {
		t.Errorf("QEMU passes %s on its way to it", d)
	}
}

func TestTheImageOfAnExportIsOneOfTheNetwork(t *testing.T) {
	uri := medium.NBDExport{Name: "web", Socket: "/run/s"}.URI()
	l := api.Location{Path: uri, Format: api.FormatRaw, SizeBytes: 1 << 20}
	want := hv.Image{Type: hv.SourceNetwork, Format: "raw", Path: uri}
	if got := location.Image(l, false); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if d := location.Directory(uri); d != "/run" {
		t.Errorf("QEMU passes %s on its way to it", d)
	}
	if !location.HasVolume(&hv.Disk{Chain: []hv.Image{want}, Terminated: true}, l, false) {
		t.Error("a disk of it is not the volume")
	}
}
