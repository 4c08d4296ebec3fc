// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// directories says whether the daemon's directories are there, and for it alone.
func (d *doctor) directories() api.Check {
	const name = "directories"
	var faults []string
	status := "warn"
	for _, dir := range d.cfg.ownDirs() {
		if dir.missing() {
			status = "fail"
			faults = append(faults, dir.path+" is gone")
		} else if has, extra := dir.tooOpen(); extra != 0 {
			faults = append(faults, fmt.Sprintf("%s (mode %04o) is open to every user of this host", dir.path, has))
		}
	}
	if len(faults) == 0 {
		return ok(name, "they are there, and for root alone")
	}
	return api.Check{Name: name, Status: status, Message: strings.Join(faults, "; "), Advice: "volferryctl doctor --fix"}
}
