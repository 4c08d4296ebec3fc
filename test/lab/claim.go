// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
