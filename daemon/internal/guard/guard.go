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

// Dir is a directory with one file per domain that must not be started. While the file is
// there, the libvirt hook volferry-guard refuses the start and gives its text as the
// reason. A guard outlives this process and a reboot of the host: write to a journal before
// you set one, so that recovery clears it.
//
// A domain may be guarded for several reasons at once, each with its owner: the file has a
// line for each, "REASON [OWNER]", and is removed with the last of them.
//
// Safe for concurrent use in one process.
type Dir struct {
	dir, hook string

	mu sync.Mutex // held from the read of a file to its replacement
}

// New returns the guards in dir, which the first Set makes. Hook is the path where libvirt
// has the hook (DefaultHook), for Enforced.
func New(dir, hook string) *Dir { return &Dir{dir: dir, hook: hook} }

// Set guards the domain with this UUID, durably before it returns. Owner says for whom
// ("migration UUID"). Reason is the whole sentence that a person who tries the start will
// read. A second Set by the same owner replaces the reason.
func (d *Dir) Set(id, owner, reason string) error {
	line := reason + ownerSuffix(owner)
	err := d.change(id, func(lines []string) []string { return append(without(lines, owner), line) })
	if err != nil {
		return fmt.Errorf("set guard of instance %s: %w", id, err)
	}
	return nil
}

// Clear removes the owner's guard of the domain, durably before it returns. Guards of other
// owners stay. It is no error if there is no guard.
func (d *Dir) Clear(id, owner string) error {
	err := d.change(id, func(lines []string) []string { return without(lines, owner) })
	if err != nil {
		return fmt.Errorf("clear guard of instance %s: %w", id, err)
	}
	return nil
}

// Has reports whether the owner guards the domain. An error means that this is unknown, which
// is not the same as no.
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

// Guard is one reason why a domain must not be started, and whose it is.
type Guard struct{ Owner, Reason string }

// The owners of guards that concern the instance as a whole.
const (
	// OwnerRoot: the root volume is missing.
	OwnerRoot = "root"
	// OwnerShelf: the instance is on the shelf, or belongs to another host.
	OwnerShelf = "shelf"
	// OwnerPause, with the migration's id after it, owns the guard that keeps an
	// instance saved while one of its volumes moves with all guests paused.
	OwnerPause = "pause "
)

// Of returns the guards of a domain. An error means that they are unknown, which is not the
// same as none.
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

// change replaces the lines of a domain's file. It ends a start token, which was issued
// for the guard as it was.
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

// readLines reads a guard; no file has no lines.
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

// List returns the reasons of all guards by domain UUID. It leaves out files with other
// names.
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

// path is the file of a domain's guard. Only a UUID as libvirt writes it (lower
// case, with dashes) is taken: the hook compares names byte by byte, and
// nothing else is safe as a file name.
func (d *Dir) path(id string) (string, error) {
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.String() != id {
		return "", fmt.Errorf("guard: %q is not the UUID of a domain", id)
	}
	return filepath.Join(d.dir, id), nil
}

// makeDir makes the directory and syncs it into its parent, for a guard in a
// directory that a power cut forgets is no guard. It syncs an old directory
// too: the process that made it may have died before its sync.
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

// A start token is a file beside a domain's guard. The hook lets a start through the
// guards of the owner that its second line names, if the definition that libvirt is
// about to run has the text of its first line in it. The hook has the suffix too, in PASS.
const startTokenSuffix = ".pass"

// revokeStartToken removes the start token beside the guard at path. The caller holds mu.
func revokeStartToken(path string) error {
	if _, err := os.Lstat(path + startTokenSuffix); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := atomicfile.Remove(path + startTokenSuffix); err != nil {
		return fmt.Errorf("revoke start token: %w", err)
	}
	return nil
}
