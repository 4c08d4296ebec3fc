// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestDoctorNamesTheVolumesWhoseImagesAreNotThere(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there.raw")
	if err := os.WriteFile(there, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(id, name, path string) api.Volume {
		return api.Volume{ID: id, Name: name, Location: api.Location{Path: path}, Attachments: []api.Attachment{{}}}
	}
	away := filepath.Join(dir, "unmounted", "lost.raw")
	registry := knownVolumes{"lost": at("lost", "lost", away), "moved": at("moved", "moved", there), "detached": {ID: "detached", Location: api.Location{Path: away}}}
	d := &Doctor{Volume: registry.find}
	volumes := []api.Volume{
		{Name: "good", Location: api.Location{Path: there}},
		{Name: "remote", Location: api.Location{Path: "nbd+unix:///export?socket=/run/gone.sock"}},
		at("moved", "moved", away), // half a minute ago
		at("detached", "detached", away),
		at("deleted", "deleted", away),
		at("lost", "lost", away),
	}
	checks := d.missing(t.Context(), volumes)
	if len(checks) != 1 || checks[0].Status != "fail" || !strings.Contains(checks[0].Message, "volume lost is missing at "+dir) {
		t.Errorf("%+v, want one failure that names the volume and its path", checks)
	}
	if checks = d.missing(t.Context(), volumes[:5]); len(checks) != 1 || checks[0].Status != "ok" {
		t.Errorf("%+v, want ok", checks)
	}
	d.Volume = knownVolumes(nil).find // the registry does not answer
	if checks = d.missing(t.Context(), volumes[5:]); len(checks) != 1 || checks[0].Status != "fail" {
		t.Errorf("%+v without the registry, want the failure", checks)
	}
}

// If an operator has just set the volume's device, doctor uses that at once.
func TestDoctorNamesAVolumeAtWhosePathAnotherDeviceIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.raw") // a file has no identity of its own
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	on := func(identity string) api.Volume {
		return api.Volume{ID: "db", Name: "db", Location: api.Location{Path: path, Identity: identity}, Attachments: []api.Attachment{{}}}
	}
	for _, c := range []struct{ known, now, status string }{{"naa.a", "naa.a", "fail"}, {"naa.a", "", "ok"}, {"", "", "ok"}} {
		d := &Doctor{Volume: knownVolumes{"db": on(c.now)}.find}
		checks := d.missing(t.Context(), []api.Volume{on(c.known)})
		if len(checks) != 1 || checks[0].Status != c.status || c.status == "fail" && !strings.Contains(checks[0].Message, "at the path of volume db: ") {
			t.Errorf("%+v with %q known and %q at the registry, want %s", checks, c.known, c.now, c.status)
		}
	}
}

// knownVolumes are a registry's volumes; nil does not answer.
type knownVolumes map[string]api.Volume

func (k knownVolumes) find(_ context.Context, ref string) (api.Volume, error) {
	if k == nil {
		return api.Volume{}, api.Errorf(api.CodeRegistryUnavailable, "nobody listens")
	}
	vol, known := k[ref]
	if !known {
		return api.Volume{}, api.Errorf(api.CodeNotFound, "there is no volume %s", ref)
	}
	return vol, nil
}
