// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
)

func TestDoctorFailsForAGuestThatStandsStillOnItsOverlay(t *testing.T) {
	var (
		open []api.Migration
		fail error
	)
	var unresumed []string
	d := &Doctor{Open: func(context.Context) ([]api.Migration, error) { return open, fail }, Unresumed: func() []string { return unresumed }}
	failed := func() (text string) {
		for _, c := range d.moves(t.Context()) {
			if c.Status == "fail" {
				text += c.Name + ": " + c.Message + "\n" + c.Advice + "\n"
			}
		}
		return text
	}
	open = []api.Migration{{ID: "m1", VolumeName: "db", State: api.MigrationStarted, SrcAttachmentID: "a1"}}
	if got := failed(); got != "" {
		t.Errorf("with a guest that runs: %s", got)
	}
	unresumed = []string{"instance web2 was paused for the move of volume shared"}
	for _, want := range []string{"overlays: ", "instance web2 was paused", "goes on by itself"} {
		if got := failed(); !strings.Contains(got, want) || strings.Contains(got, "overlay's disk is full") {
			t.Errorf("not resumed: %q, want %q and nothing of a full disk", got, want)
		}
	}
	unresumed = nil
	open[0].GuestPaused = "instance web1 is paused: there is no room"
	for _, want := range []string{"overlays: ", "instance web1 is paused", "db: ", "volferryctl migration cancel a1"} {
		if got := failed(); !strings.Contains(got, want) || strings.Contains(got, "migration complete") {
			t.Errorf("before the copy: %q, want %q and no complete", got, want)
		}
	}
	open[0].State = api.MigrationCopying
	if got := failed(); !strings.Contains(got, "volferryctl migration cancel a1") {
		t.Errorf("while it is copied: %q", got)
	}
	open[0].State = api.MigrationCopied
	if got := failed(); !strings.Contains(got, "volferryctl migration complete a1") {
		t.Errorf("copied: %q", got)
	}
	fail = errors.New("journal away")
	if got := failed(); !strings.Contains(got, "journal away") {
		t.Errorf("without the journal: %q", got)
	}
}

func TestDoctorFailsForADiskThatSomebodyElseHasChanged(t *testing.T) {
	problem := &api.ChainProblem{Message: "over the overlay is a snapshot", Cure: "virsh blockcommit web vda"}
	d := &Doctor{Open: func(context.Context) ([]api.Migration, error) {
		return []api.Migration{{ID: "m1", VolumeName: "db", State: api.MigrationCopying, ChainProblem: problem}}, nil
	}, Unresumed: func() []string { return nil }}
	found := d.moves(t.Context())
	last := found[len(found)-1]
	if last.Name != "chains" || last.Status != "fail" || !strings.Contains(last.Message, problem.Message) || !strings.Contains(last.Advice, problem.Cure) {
		t.Errorf("%+v", found)
	}
}

func TestDoctorNamesTheRepairOfADefinitionThatNamesAnotherImage(t *testing.T) {
	note := uplink.Note{InstanceName: "tour", Text: "its disk vda is at /old/tour.raw"}
	if got := checkNote(&note); got.Status != "warn" || got.Message != note.Text || got.Advice != "" {
		t.Errorf("another note: %+v", got)
	}
	note.Misnamed = true
	if got := checkNote(&note); got.Status != "warn" || !strings.Contains(got.Advice, "`volferryctl instance repair tour`") {
		t.Errorf("a definition with another image: %+v", got)
	}
	note.Misnamed, note.RunsElsewhere = false, true
	if got := checkNote(&note); got.Status != "fail" || got.Advice != "" {
		t.Errorf("a guest that runs on another image: %+v", got)
	}
}
