// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/config"
)

func TestDoctorSaysWhereTheMemoryOfSavedGuestsIsLostWithTheHost(t *testing.T) {
	const tmpfs = "/dev/shm"
	inMemory, err := os.MkdirTemp(tmpfs, "volferry-test-") //nolint:usetesting // a tmpfs
	if err != nil {
		t.Skipf("SKIPPED: this machine has no %s to try with: %v", tmpfs, err)
	}
	defer func() { _ = os.RemoveAll(inMemory) }()
	for name, is := range map[string]struct {
		dir          string
		allowed      bool
		status, says string
	}{
		"in memory, as asked for":    {inMemory, true, "ok", "is lost if the host goes down"},
		"in memory, unasked":         {inMemory, false, "fail", "save_dir_in_memory"},
		"on disk":                    {t.TempDir(), false, "ok", "free"},
		"on disk, not as asked for":  {t.TempDir(), true, "warn", "on disk"},
		"asked for, and not mounted": {inMemory + "/none", true, "fail", "none"},
	} {
		d := &Doctor{Cfg: &config.Config{SaveDir: is.dir, SaveDirInMemory: is.allowed}}
		if got := d.saves(); got.Status != is.status || !strings.Contains(got.Message, is.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
