// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/atomicfile"
)

// Guards is a directory with one file per domain that must not be started. The
// libvirt hook volferry-guard refuses the start while the file is there and
// gives its text as the reason. A guard outlives this process and a reboot of
// the host: whoever sets one journals first, so that recovery clears it.
//
// Safe for concurrent use; the last Set of an id wins.
type Guards struct{ dir, hook string }

// NewGuards returns the guards kept in dir, which is made by the first Set. Hook
// is where libvirt has the hook that reads them (DefaultHook), for Enforced.
func NewGuards(dir, hook string) *Guards { return &Guards{dir: dir, hook: hook} }

// Set guards the domain with this UUID, durably before it returns. Reason is
// the whole sentence that the person who tries the start will read. A second
// Set replaces the reason.
func (g *Guards) Set(id, reason string) error {
	path, err := g.path(id)
	if err != nil {
		return err
	}
	if err := g.makeDir(); err != nil {
		return fmt.Errorf("set guard of instance %s: %w", id, err)
	}
	if err := atomicfile.Write(path, []byte(reason+"\n"), 0o644); err != nil {
		return fmt.Errorf("set guard of instance %s: %w", id, err)
	}
	return nil
}

// Clear removes the guard of the domain, durably before it returns. No guard is
// no error.
func (g *Guards) Clear(id string) error {
	path, err := g.path(id)
	if err != nil {
		return err
	}
	if err := atomicfile.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clear guard of instance %s: %w", id, err)
	}
	return nil
}

// Has says whether the domain is guarded. An error means that nobody can tell,
// which is not the same as no.
func (g *Guards) Has(id string) (bool, error) {
	path, err := g.path(id)
	if err != nil {
		return false, err
	}
	_, err = os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for guard of instance %s: %w", id, err)
	}
	return true, nil
}

// List returns the reason of every guard by domain UUID. Files with other names
// are none of ours and are left out.
func (g *Guards) List() (map[string]string, error) {
	entries, err := os.ReadDir(g.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list guards: %w", err)
	}
	guards := map[string]string{}
	for _, e := range entries {
		path, err := g.path(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // cleared since ReadDir
		}
		if err != nil {
			return nil, fmt.Errorf("list guards: %w", err)
		}
		guards[e.Name()] = strings.TrimSuffix(string(text), "\n")
	}
	return guards, nil
}

// path is the file of a domain's guard. Only a UUID as libvirt writes it (lower
// case, with dashes) is taken: the hook compares names byte by byte, and
// nothing else is safe as a file name.
func (g *Guards) path(id string) (string, error) {
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.String() != id {
		return "", fmt.Errorf("guard: %q is not the UUID of a domain", id)
	}
	return filepath.Join(g.dir, id), nil
}

// makeDir makes the directory and syncs it into its parent, for a guard in a
// directory that a power cut forgets is no guard. It syncs an old directory
// too: the process that made it may have died before its sync.
func (g *Guards) makeDir() error {
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	parent, err := os.Open(filepath.Dir(g.dir))
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}
