// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"

	"github.com/volferry/volferry/internal/api"
)

// definitions checks that libvirt's definitions are in the directory that is synced.
func (d *Doctor) definitions() api.Check {
	if _, err := os.Stat(d.Cfg.LibvirtConfigDir); err != nil {
		return api.Check{
			Name: "definitions", Status: "warn", Message: "libvirt's definitions are not where they are synced: " + err.Error(),
			Advice: "set libvirt_config_dir; until then whole filesystems are synced after each step that changed one, which may take long with a guest paused",
		}
	}
	return ok("definitions", "libvirt's definitions are in "+d.Cfg.LibvirtConfigDir)
}
