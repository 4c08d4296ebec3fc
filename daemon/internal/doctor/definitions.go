// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"

	"github.com/volferry/volferry/internal/api"
)

func (d *Doctor) definitions() api.Check {
	if _, err := os.Stat(d.Cfg.LibvirtConfigDir); err != nil {
		return api.Check{
			Name: "definitions", Status: "warn", Message: "the directory with libvirt's definitions of domains cannot be synced: " + err.Error(),
			Advice: "set libvirt_config_dir to that directory; until then each step that changes a definition syncs whole filesystems, which may take long while a guest is paused",
		}
	}
	return ok("definitions", "libvirt's definitions are in "+d.Cfg.LibvirtConfigDir)
}
