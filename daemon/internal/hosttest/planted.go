// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// Planted is a pool of files in a directory of this machine. The path of a volume in it is a
// symbolic link to a file outside all pools, as another host with the pool can create it.
type Planted struct {
	Location api.Location
	secret   string
}

const plantedContent = "bytes of somebody else"

// PlantLink makes the pool with the link, and in the fake an image at the link.
func PlantLink(t *testing.T, f *hvtest.Fake, sizeBytes int64) Planted {
	t.Helper()
	p := PlantLater(t, f, sizeBytes)
	p.Plant(t)
	return p
}

// PlantLater makes the pool with a file at the volume's path. Plant replaces the file by the link.
func PlantLater(t *testing.T, f *hvtest.Fake, sizeBytes int64) Planted {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := Planted{secret: filepath.Join(dir, "secret")}
	pool := filepath.Join(dir, "planted")
	p.Location = api.Location{Pool: "planted", Name: "vol.raw", Path: filepath.Join(pool, "vol.raw"), Format: api.FormatRaw, SizeBytes: sizeBytes}
	for _, made := range []error{os.WriteFile(p.secret, []byte(plantedContent), 0o600), os.Mkdir(pool, 0o700), os.WriteFile(p.Location.Path, nil, 0o600)} {
		if made != nil {
			t.Fatal(made)
		}
	}
	f.AddPool(hv.PoolInfo{Name: "planted", Type: "dir", Path: pool, Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
	if err := f.CreateImage(p.Location.Path, hvtest.Raw, sizeBytes); err != nil {
		t.Fatal(err)
	}
	return p
}

// Plant replaces the file by the link.
func (p Planted) Plant(t *testing.T) {
	t.Helper()
	for _, done := range []error{os.Remove(p.Location.Path), os.Symlink(p.secret, p.Location.Path)} {
		if done != nil {
			t.Error(done)
		}
	}
}

// Restore replaces the link by a file.
func (p Planted) Restore(t *testing.T) {
	t.Helper()
	for _, done := range []error{os.Remove(p.Location.Path), os.WriteFile(p.Location.Path, nil, 0o600)} {
		if done != nil {
			t.Error(done)
		}
	}
}

// Rules returns the location rules of the pool's host.
func (Planted) Rules(f *hvtest.Fake) location.Rules { return location.Rules{Storage: f} }

// Refused checks that err is a refusal that names the link, and that file and pool are unchanged.
func (p Planted) Refused(t *testing.T, err error) {
	t.Helper()
	if api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("got %v, want permission_denied", err)
	} else {
		p.Named(t, err.Error())
	}
	p.Untouched(t)
}

// Named checks that a refusal names the link.
func (p Planted) Named(t *testing.T, message string) {
	t.Helper()
	if !strings.Contains(message, p.Location.Path) || !strings.Contains(message, "symbolic link") {
		t.Errorf("%q does not name the link %s", message, p.Location.Path)
	}
}

// Untouched checks that the outside file is unchanged and the pool has only the link.
func (p Planted) Untouched(t *testing.T) {
	t.Helper()
	if text, err := os.ReadFile(p.secret); err != nil || string(text) != plantedContent {
		t.Errorf("the file outside of the pool has %q now (%v)", text, err)
	}
	entries, err := os.ReadDir(filepath.Dir(p.Location.Path))
	if err != nil || len(entries) != 1 {
		t.Errorf("in the pool is %v (%v), want the link alone", entries, err)
	}
}
