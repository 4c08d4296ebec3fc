// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestDoctorSaysWhatCanBeDoneAboutASourceThatWasWritten(t *testing.T) {
	var (
		left []api.ReleasedSource
		fail error
	)
	none := func(context.Context) ([]api.ReleasedSource, error) { return nil, nil }
	d := &Doctor{Written: func(context.Context) ([]api.ReleasedSource, error) { return left, fail }, Released: none}
	one := func(status string, says ...string) {
		t.Helper()
		checks := d.sources(t.Context())
		for _, word := range says {
			if len(checks) != 1 || checks[0].Status != status || !strings.Contains(checks[0].Message+"\n"+checks[0].Advice, word) {
				t.Errorf("%+v, want one %s that says %q", checks, status, word)
			}
		}
	}
	one("ok", "no released source was written")
	left = []api.ReleasedSource{{MigrationID: "m1", VolumeName: "db", Location: api.Location{Pool: "old", Name: "db 1.raw", Path: "/old/db 1.raw", Format: api.FormatRaw}, Written: true, VolumePath: "/new/db.raw"}}
	one("warn", "volume db", "/old/db 1.raw", "/new/db.raw", "m1", "docs/how-to/recover.md",
		"volferryctl volume adopt db-old --pool old --volume-name 'db 1.raw' --format raw --force", "virsh vol-delete --pool old 'db 1.raw'")
	left[0].Location = api.Location{Path: "/dev/vg/db", Format: api.FormatRaw}
	one("warn", "--path /dev/vg/db", "removed where it was made")
	left[0].RunBy = "web"
	one("fail", "instance web runs on /dev/vg/db", "virsh shutdown web", "delete neither")
	left, fail = nil, errors.New("registry away")
	one("warn", "cannot check whether", "registry away")
}

func TestDoctorSaysOfWhichSourcesNobodyCanTellWhetherTheyWereWritten(t *testing.T) {
	d := &Doctor{
		Written: func(context.Context) ([]api.ReleasedSource, error) { return nil, nil },
		Released: func(context.Context) ([]api.ReleasedSource, error) {
			return []api.ReleasedSource{
				{MigrationID: "m1", VolumeName: "db", Location: api.Location{Path: "/dev/vg/db"}, WrittenUnknown: "the host was booted"},
				{MigrationID: "m2", VolumeName: "web", Location: api.Location{Path: "/old/web.raw"}},
			}, nil
		},
	}
	checks := d.sources(t.Context())
	if len(checks) != 1 || checks[0].Status != "warn" || !strings.Contains(checks[0].Message, "it is not known whether /dev/vg/db, which volume db has left by migration m1, was written") || !strings.Contains(checks[0].Message, "the host was booted") {
		t.Errorf("%+v, want a check that nothing is known of writes to /dev/vg/db, and why", checks)
	}
}
