// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// ClaimDir makes a directory for a test, in which it may mount what it likes. release
// removes it with all that is in it; if this process dies before, the first lab of
// another one does (Sweep). What runs in it has to die with this process.
func ClaimDir(dir string) (release func() error, err error) {
	sweepOnce()
	c := &claim{Dir: dir, PID: os.Getpid(), StartTime: startTime(os.Getpid()), Files: true}
	if err := c.write(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("claim lab directory: %w", errors.Join(err, c.release()))
	}
	return sync.OnceValue(func() error {
		if err := c.clean(); err != nil {
			return err
		}
		return c.release()
	}), nil
}

// clean removes what the claim stands for.
func (c *claim) clean() error {
	if err := clean(c.Dir); err != nil {
		return err
	}
	if !c.Files {
		return nil
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		return fmt.Errorf("clean up lab directory: %w", err)
	}
	return nil
}

// Sweep removes what labs left behind whose process is dead: their processes,
// mounts and loop devices, and the files of ClaimDir alone. It never touches a lab whose
// process lives, nor one in which such a lab is. It returns the directories it
// cleaned; what it could not clean is in nobody's way but takes memory and disk, and
// the error says which.
func Sweep() ([]string, error) {
	all, err := claims()
	if err != nil {
		return nil, err
	}
	// What is mounted in a lab is in use until its guests are gone, so a
	// directory comes before those in it.
	slices.SortFunc(all, func(a, b *claim) int { return strings.Compare(a.Dir, b.Dir) })
	alive := slices.DeleteFunc(slices.Clone(all), (*claim).dead)
	var swept []string
	var errs []error
	for _, c := range all {
		if !c.dead() {
			continue
		}
		if slices.ContainsFunc(alive, func(a *claim) bool { return a.Dir == c.Dir }) { // taken over, and cleaned up there
			errs = append(errs, c.release())
			continue
		}
		if slices.ContainsFunc(alive, func(a *claim) bool { return within(c.Dir, a.Dir) }) {
			continue
		}
		if err := c.clean(); err != nil {
			errs = append(errs, err)
			continue
		}
		swept = append(swept, c.Dir)
		errs = append(errs, c.release())
	}
	return swept, errors.Join(errs...)
}

// sweepOnce removes what killed labs left, once in a process, before its first lab.
// What cannot be removed is told, and keeps nobody from working.
var sweepOnce = sync.OnceFunc(func() {
	if _, err := Sweep(); err != nil {
		fmt.Fprintf(os.Stderr, "lab: what a killed lab left is still there: %v\n", err)
	}
})
