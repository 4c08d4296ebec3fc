// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// claimsDir holds one record for each thing of a lab that outlives the process
// that made it. /run is empty after a boot, and so is the kernel.
const claimsDir = "/run/volferry-lab"

// claim says which process answers for what is in a lab directory.
type claim struct {
	Dir       string
	PID       int
	StartTime string // of PID, see startTime
	// Files says that the directory itself goes, too, when the process is dead.
	Files bool

	path string
}

// claimDir records, before anything in dir is made that only a clean end would
// remove, that this process will do so. Sweep looks after the claims of dead
// processes.
func claimDir(dir string) (*claim, error) {
	c := &claim{Dir: dir, PID: os.Getpid(), StartTime: startTime(os.Getpid())}
	if err := c.write(); err != nil {
		return nil, err
	}
	return c, nil
}

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

// write records the claim.
func (c *claim) write() error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("claim lab directory: %w", err)
	}
	if err := os.MkdirAll(claimsDir, 0o700); err != nil {
		return fmt.Errorf("claim lab directory: %w", err)
	}
	f, err := os.CreateTemp(claimsDir, "claim-*.json")
	if err != nil {
		return fmt.Errorf("claim lab directory: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("claim lab directory: %w", errors.Join(err, os.Remove(f.Name())))
	}
	c.path = f.Name()
	return nil
}

// release ends the claim; what it stood for is gone. Of a dead process somebody else
// may have done so.
func (c *claim) release() error {
	if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release lab directory: %w", err)
	}
	return nil
}

// dead reports whether the process that made the claim is no more.
func (c *claim) dead() bool {
	return startTime(c.PID) != c.StartTime
}

// claims reads all records. One that cannot be read is being written by a
// process that lives, or was when the machine lost power: it claims nothing.
func claims() ([]*claim, error) {
	paths, err := filepath.Glob(filepath.Join(claimsDir, "claim-*.json"))
	if err != nil {
		return nil, fmt.Errorf("list lab claims: %w", err)
	}
	var all []*claim
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		c := &claim{path: path}
		if json.Unmarshal(data, c) == nil {
			all = append(all, c)
		}
	}
	return all, nil
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
	return fmt.Errorf("clean up %s: %s left, in use by [%s]: %w",
		path, strings.Join(left, ", "), strings.Join(usersOf(path), ", "), err)
}
