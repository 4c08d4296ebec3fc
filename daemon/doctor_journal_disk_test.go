// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestStatusNamesAJournalDiskThatGuestsAreAboutToFill(t *testing.T) {
	dir := t.TempDir()
	d := &doctor{cfg: &config{StateDir: dir, OverlayDir: dir, SaveDir: "/proc", OverlayMinFreeBytes: 1 << 62}}
	if got := d.shortOfRoom(); len(got) != 1 || got[0].Status != "warn" || !strings.Contains(got[0].Message, "overlay_dir") {
		t.Errorf("little is free, and status has %+v", got)
	}
	d.cfg.OverlayMinFreeBytes = 0
	if got := d.shortOfRoom(); got != nil {
		t.Errorf("enough is free, and status has %+v", got)
	}
	d.cfg.OverlayDir, d.cfg.OverlayMinFreeBytes = "/proc", 1<<62
	if got := d.shortOfRoom(); got != nil {
		t.Errorf("the journal has a filesystem of its own, and status has %+v", got)
	}
}

func TestDoctorSaysOfASharedJournalDiskWhoseBytesFillIt(t *testing.T) {
	dir := t.TempDir()
	d := &doctor{cfg: &config{StateDir: dir, OverlayDir: dir, SaveDir: dir}}
	if got := d.sharedDisk(); !strings.Contains(got.Message, "what guests write") {
		t.Errorf("for overlays: %+v", got)
	}
	d.cfg.OverlayDir = "/proc"
	if got := d.sharedDisk(); strings.Contains(got.Message+got.Advice, "write") || !strings.Contains(got.Message, "memory of guests that are saved") {
		t.Errorf("for saves: %+v", got)
	}
}
