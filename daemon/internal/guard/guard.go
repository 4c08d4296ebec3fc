// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/atomicfile"
)

// Dir is a directory of guards: it has a file for each domain that must not be started. While the
// file exists, the libvirt hook volferry-guard refuses the start and prints the file's text as the
// reason. A guard outlives this process and a reboot of the host. So write a journal record before
// Set, so that recovery will clear the guard.
//
// A domain may have several guards, each with its owner. The file has a line "REASON [OWNER]" for
// each, and is removed with the last.
//
// Dir is safe for concurrent use in one process.
type Dir struct {
	dir, hook string

	mu sync.Mutex // held from the read of a file until its replacement
}

// New returns the guards in dir. The first Set creates dir. hook is the path of the installed
// libvirt hook (DefaultHook), which Enforced checks.
func New(dir, hook string) *Dir { return &Dir{dir: dir, hook: hook} }

// Set guards the domain with this UUID, durably before it returns. owner is for example "migration
// UUID". reason is printed to a person who starts the domain. A second Set by the same owner
// replaces the reason.
func (d *Dir) Set(id, owner, reason string) error {
	line := reason + ownerSuffix(owner)
	err := d.change(id, func(lines []string) []string { return append(without(lines, owner), line) })
	if err != nil {
		return fmt.Errorf("set guard of instance %s: %w", id, err)
	}
	return nil
}

// Clear removes the owner's guard of the domain, durably before it returns. Other owners' guards
// stay. A missing guard is no error.
func (d *Dir) Clear(id, owner string) error {
	err := d.change(id, func(lines []string) []string { return without(lines, owner) })
	if err != nil {
		return fmt.Errorf("clear guard of instance %s: %w", id, err)
	}
	return nil
}

// Has reports whether the owner guards the domain. After an error this is unknown.
func (d *Dir) Has(id, owner string) (bool, error) {
	path, err := d.path(id)
	if err != nil {
		return false, err
	}
	lines, err := readLines(path)
	if err != nil {
		return false, fmt.Errorf("look for guard of instance %s: %w", id, err)
	}
	return len(without(lines, owner)) < len(lines), nil
}

// Guard is one reason why a domain must not be started, and the reason's owner.
type Guard struct{ Owner, Reason string }

// The owners of guards that concern a whole instance.
const (
	// OwnerRoot guards an instance without its root volume.
	OwnerRoot = "root"
	// OwnerShelf guards an instance that is on the shelf or belongs to another host.
	OwnerShelf = "shelf"
	// OwnerPause, followed by a migration's id, guards a saved instance while one of its volumes
	// moves with all guests paused.
	OwnerPause = "pause "
)

// Of returns the guards of a domain. After an error they are unknown.
func (d *Dir) Of(id string) ([]Guard, error) {
	path, err := d.path(id)
	if err != nil {
		return nil, err
	}
	lines, err := readLines(path)
	if err != nil {
		return nil, fmt.Errorf("look for guards of instance %s: %w", id, err)
	}
	var out []Guard
	for _, line := range lines {
		guard := Guard{Reason: line}
		if i := strings.LastIndex(line, " ["); i >= 0 && strings.HasSuffix(line, "]") {
			guard = Guard{Owner: line[i+2 : len(line)-1], Reason: line[:i]}
		}
		out = append(out, guard)
	}
	return out, nil
}

// change replaces the lines of a domain's file. It revokes a start token, because that was issued
// for the previous guards.
func (d *Dir) change(id string, edit func([]string) []string) error {
	path, err := d.path(id)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	lines, err := readLines(path)
	if err != nil {
		return err
	}
	if err := revokeStartToken(path); err != nil {
		return err
	}
	if lines = edit(lines); len(lines) == 0 {
		if err := atomicfile.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := d.makeDir(); err != nil {
		return err
	}
	return atomicfile.Write(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

func ownerSuffix(owner string) string { return " [" + owner + "]" }

func without(lines []string, owner string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.HasSuffix(line, ownerSuffix(owner)) })
}

func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

// List returns the reasons of all guards, by domain UUID. It ignores files with other names.
func (d *Dir) List() (map[string]string, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list guards: %w", err)
	}
	guards := map[string]string{}
	for _, e := range entries {
		path, err := d.path(e.Name())
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

// path returns the path of a domain's guard file. It accepts only a UUID as libvirt writes it
// (lower case, with dashes): the hook compares names byte by byte, and other text is unsafe as a
// file name.
func (d *Dir) path(id string) (string, error) {
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.String() != id {
		return "", fmt.Errorf("guard: %q is not the UUID of a domain", id)
	}
	return filepath.Join(d.dir, id), nil
}

// makeDir makes the directory and syncs its parent, because a guard must survive a power cut. It
// also syncs the parent of an existing directory: its maker may have died before the sync.
func (d *Dir) makeDir() error {
	if err := os.Mkdir(d.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	parent, err := os.Open(filepath.Dir(d.dir))
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// A start token is a file next to a domain's guard file, with this suffix (PASS in the hook). Its
// first line is a text, its second the end of an owner's guard lines (ownerSuffix). The hook
// ignores that owner's guards if the definition that libvirt is about to run contains the text.
const startTokenSuffix = ".pass"

// revokeStartToken removes the start token of the guard file at path. The caller holds mu.
func revokeStartToken(path string) error {
	if _, err := os.Lstat(path + startTokenSuffix); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := atomicfile.Remove(path + startTokenSuffix); err != nil {
		return fmt.Errorf("revoke start token: %w", err)
	}
	return nil
}
