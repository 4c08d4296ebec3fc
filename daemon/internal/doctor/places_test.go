// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

func TestDoctorNamesVolumesOutsideTheAllowedPlaces(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	paths := []string{open}
	d := &Doctor{Cfg: &config.Config{AllowedPaths: paths}, Rules: location.Rules{AllowedPaths: paths}}
	checks := d.outside(t.Context(), []api.Volume{
		{Name: "listed", Location: api.Location{Path: open + "/a.raw"}},
		{Name: "pooled", Location: api.Location{Pool: "p", Path: "/etc/b.raw"}},
		{Name: "outside", Location: api.Location{Path: "/etc/c.raw"}},
	})
	if len(checks) != 2 {
		t.Fatalf("checks %+v, want the open directory and the volume outside", checks)
	}
	for i, want := range []string{"allowed_paths has " + open, "/etc/c.raw"} {
		if c := checks[i]; c.Status != "warn" || !strings.Contains(c.Message, want) {
			t.Errorf("%+v does not say %q", c, want)
		}
	}
	if !strings.Contains(checks[1].Advice, "volferryctl volume migrate outside --to-pool") || strings.Contains(checks[1].Message, "make a pool") {
		t.Errorf("it advises a pool of /etc: %+v", checks[1])
	}
	if checks[1].Name != "volume outside" {
		t.Errorf("the volume is called %q", checks[1].Name)
	}
}
