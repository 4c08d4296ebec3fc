// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	d := &doctor{}
	volumes := []api.Volume{
		{Name: "good", Location: api.Location{Path: there}},
		{Name: "remote", Location: api.Location{Path: "nbd+unix:///export?socket=/run/gone.sock"}},
		{Name: "lost", Location: api.Location{Path: filepath.Join(dir, "unmounted", "lost.raw")}},
	}
	checks := d.missing(t.Context(), volumes)
	if len(checks) != 1 || checks[0].Status != "fail" || !strings.Contains(checks[0].Message, "volume lost at "+dir) {
		t.Errorf("%+v, want one failure that names the volume and its path", checks)
	}
	if checks = d.missing(t.Context(), volumes[:2]); len(checks) != 1 || checks[0].Status != "ok" {
		t.Errorf("%+v, want ok", checks)
	}
}
