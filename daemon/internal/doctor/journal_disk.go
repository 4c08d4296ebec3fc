// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

func (d *Doctor) sharedDisk() api.Check {
	key, dir, err := sharesJournalDisk(d.Cfg)
	switch {
	case err != nil:
		return api.Check{Name: journalDisk, Status: "fail", Message: err.Error(), Advice: "make the directory, or set state_dir"}
	case key == "":
		return ok(journalDisk, "guests cannot fill the filesystem of the journal")
	}
	what, who := "the guests' writes while their volumes move", "for guests that write much,"
	if key == config.SaveDir {
		what, who = "the memory of guests that are saved while a volume moves", "for guests with much memory,"
	}
	return api.Check{
		Name: journalDisk, Status: "warn",
		Message: fmt.Sprintf("%s (%s) is on the filesystem of the journal (%s), as in a new installation. Moves work, but %s may fill it; "+
			"then QEMU may pause guests, and the journal uses its reserve of %d MiB, which is enough to end the moves", key, dir, d.Cfg.StateDir, what, config.ReserveBytes>>20),
		Advice: fmt.Sprintf("no action is needed for a trial; %s mount a separate filesystem at %s, or set %s to a directory on another filesystem and restart volferryd", who, dir, key),
	}
}

// ShortOfRoom warns in the daemon's status if guests are about to fill the journal's filesystem.
func (d *Doctor) ShortOfRoom() []api.Check {
	key, dir, err := sharesJournalDisk(d.Cfg)
	if err != nil || key == "" {
		return nil // doctor's check has the error
	}
	free, err := d.Storage.FreeBytes(dir)
	if err != nil || free >= d.Cfg.OverlayMinFreeBytes {
		return nil
	}
	writer := "guests write"
	if key == config.SaveDir {
		writer = "guests are saved"
	}
	return []api.Check{{
		Name: journalDisk, Status: "warn",
		Message: fmt.Sprintf("%s has %s free: %s there, and the journal is on the same filesystem (%s)", dir, humanize.Bytes(free), writer, key),
		Advice:  "free some space, or set " + key + " to a directory on a separate filesystem",
	}}
}

const journalDisk = "journal disk"

// sharesJournalDisk returns a setting (overlay_dir or save_dir) and its directory, if that
// directory is on the journal's filesystem: guests can then fill it. Otherwise it returns "".
func sharesJournalDisk(c *config.Config) (key, dir string, err error) {
	state, err := filesystemOf(c.StateDir)
	if err != nil {
		return "", "", err
	}
	for _, is := range [][2]string{{"overlay_dir", c.OverlayDir}, {config.SaveDir, c.SaveDir}} {
		if other, err := filesystemOf(is[1]); err == nil && other == state {
			return is[0], is[1], nil
		}
	}
	return "", "", nil
}

func filesystemOf(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", dir, err)
	}
	return st.Dev, nil
}
