// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/config"
)

func TestStatusNamesAJournalDiskThatGuestsAreAboutToFill(t *testing.T) {
	dir := t.TempDir()
	d := &Doctor{Cfg: &config.Config{StateDir: dir, OverlayDir: dir, SaveDir: "/proc", OverlayMinFreeBytes: 1 << 62}}
	if got := d.ShortOfRoom(); len(got) != 1 || got[0].Status != "warn" || !strings.Contains(got[0].Message, "overlay_dir") {
		t.Errorf("little is free, and status has %+v", got)
	}
	d.Cfg.OverlayMinFreeBytes = 0
	if got := d.ShortOfRoom(); got != nil {
		t.Errorf("enough is free, and status has %+v", got)
	}
	d.Cfg.OverlayDir, d.Cfg.OverlayMinFreeBytes = "/proc", 1<<62
	if got := d.ShortOfRoom(); got != nil {
		t.Errorf("the journal has a filesystem of its own, and status has %+v", got)
	}
}

func TestDoctorSaysOfASharedJournalDiskWhoseBytesFillIt(t *testing.T) {
	dir := t.TempDir()
	d := &Doctor{Cfg: &config.Config{StateDir: dir, OverlayDir: dir, SaveDir: dir}}
	if got := d.sharedDisk(); !strings.Contains(got.Message, "the guests' writes") {
		t.Errorf("for overlays: %+v", got)
	}
	d.Cfg.OverlayDir = "/proc"
	if got := d.sharedDisk(); strings.Contains(got.Message+got.Advice, "write") || !strings.Contains(got.Message, "memory of guests that are saved") {
		t.Errorf("for saves: %+v", got)
	}
}
