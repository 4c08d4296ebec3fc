// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// cleanTimeout is enough for a kernel under load to end processes with much memory.
const cleanTimeout = time.Minute

// clean removes everything at and below path that is not a file. One thing keeps
// another busy, and the kernel closes the files of a killed process a moment
// after the process was last seen, so it goes round until nothing is left.
func clean(path string) error {
	var left []string
	var err error
	if poll(cleanTimeout, func() bool {
		failed := errors.Join(killAllOf(path), unmountUnder(path), detachLoopsUnder(path))
		if left, err = Remains(path); err != nil || len(left) > 0 {
			err = errors.Join(err, failed)
			return false
		}
		return true
	}) {
		return nil
	}
	return errors.Join(err, fmt.Errorf("clean up %s: %s left, in use by [%s]", path, strings.Join(left, ", "), strings.Join(usersOf(path), ", ")))
}

// Remains looks for what is left of the lab in dir after its Close: processes,
// mounts and loop devices.
func Remains(dir string) ([]string, error) {
	procs, err := processesOf(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, p := range procs {
		found = append(found, fmt.Sprintf("process %d (%s)", p.pid, p.name))
	}
	mounts, err := mountsUnder(dir)
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		found = append(found, "mount "+m)
	}
	loops, err := loopDevices()
	if err != nil {
		return nil, err
	}
	for device, file := range loops {
		if within(dir, file) {
			found = append(found, fmt.Sprintf("loop device %s of %s", device, file))
		}
	}
	return found, nil
}
