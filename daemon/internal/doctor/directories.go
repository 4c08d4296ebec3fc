// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

func (d *Doctor) directories() api.Check {
	const name = "directories"
	var faults []string
	status := "warn"
	for _, dir := range d.Cfg.OwnDirs() {
		if dir.Missing() {
			status = "fail"
			faults = append(faults, dir.Path+" is missing")
		} else if has, extra := dir.TooOpen(); extra != 0 {
			faults = append(faults, fmt.Sprintf("%s (mode %04o) is open to every user of this host", dir.Path, has))
		}
	}
	if len(faults) == 0 {
		return ok(name, "the daemon's directories exist, and no other user may change them")
	}
	return api.Check{Name: name, Status: status, Message: strings.Join(faults, "; "), Advice: "volferryctl doctor --fix"}
}

func (d *Doctor) saves() api.Check {
	const name = "saves"
	if err := d.Cfg.CheckSaveDir(); err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "set save_dir to a directory on disk"}
	}
	free, err := d.Storage.FreeBytes(d.Cfg.SaveDir)
	if err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "make the directory, or set save_dir"}
	}
	message := fmt.Sprintf("%s has %s free for the memory of guests that are saved while a volume moves", d.Cfg.SaveDir, humanize.Bytes(free))
	inMemory, err := location.InMemory(d.Cfg.SaveDir)
	switch {
	case err != nil:
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "make the directory, or set save_dir"}
	case inMemory:
		message += ", in this host's own memory: the saved memory of guests is lost if the host goes down during the move"
	case d.Cfg.SaveDirInMemory:
		return api.Check{
			Name: name, Status: "warn", Message: message + ", on disk, although save_dir_in_memory is set",
			Advice: "mount the tmpfs at save_dir before volferryd starts, or remove save_dir_in_memory from volferryd.toml",
		}
	}
	return ok(name, message)
}
