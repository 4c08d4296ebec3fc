// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// ownDir is a directory of the daemon, with the mode that it is made with and the bits that
// it must never have: what is in it would be open to other users of the host.
type ownDir struct {
	path  string
	mode  fs.FileMode
	never fs.FileMode
}

// ownDirs are the directories of the daemon. One that is in another comes after it.
func (c *config) ownDirs() []ownDir {
	return []ownDir{
		{c.StateDir, 0o711, 0o002},
		{c.OverlayDir, 0o711, 0o002},
		{c.guardDir(), 0o711, 0o002},
		{c.cursorDir(), 0o700, 0o007},
		{c.auditDir(), 0o700, 0o007},
		{c.SaveDir, 0o700, 0o007}, // what guests have in memory
	}
}

// missing says whether there is nothing at the path.
func (d ownDir) missing() bool {
	_, err := os.Lstat(d.path)
	return errors.Is(err, fs.ErrNotExist)
}

// tooOpen returns the bits of the mode that the directory must not have.
func (d ownDir) tooOpen() (has, extra fs.FileMode) {
	info, err := os.Stat(d.path)
	if err != nil || !info.IsDir() {
		return 0, 0 // the first start made it; what is wrong now is said elsewhere
	}
	return info.Mode().Perm(), info.Mode().Perm() & d.never
}

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
