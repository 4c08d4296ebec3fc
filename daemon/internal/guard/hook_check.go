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
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/atomicfile"
)

// DefaultHook is the path where the guard hook is installed.
const DefaultHook = "/etc/libvirt/hooks/qemu.d/volferry-guard"

// ErrHookLooksElsewhere is the error of Enforced if the installed hook looks for guards in
// other directories.
var ErrHookLooksElsewhere = errors.New("the guards are not where the libvirt hook looks for them")

// Enforced returns nil if the hook is installed where libvirt runs it and looks for guards
// in this directory. Otherwise the error says what is wrong and what to do. HookWasThere
// reports whether libvirt knows of the hook.
func (d *Dir) Enforced() error {
	info, err := os.Stat(d.hook)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the libvirt hook %s is not installed", d.hook)
	case err != nil:
		return fmt.Errorf("look at the libvirt hook: %w", err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("the libvirt hook %s is not an executable file", d.hook)
	}
	dirs, file, err := hookDirs(d.hook)
	if err != nil {
		return fmt.Errorf("look at the libvirt hook: %w", err)
	}
	if !slices.ContainsFunc(dirs, func(dir string) bool { return sameDir(dir, d.dir) }) {
		return fmt.Errorf("%w: %s looks for guards in %s and not in %s; write that directory into %s",
			ErrHookLooksElsewhere, d.hook, strings.Join(dirs, ", "), d.dir, file)
	}
	return nil
}

// HookKnowsStartTokens returns nil if the hook lets a start with a token through, or if no
// hook is installed. An older hook refuses guests that are to be restored.
func (d *Dir) HookKnowsStartTokens() error {
	text, err := os.ReadFile(d.hook)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at the libvirt hook: %w", err)
	case !strings.Contains(string(text), "\nPASS="+startTokenSuffix+"\n"):
		return fmt.Errorf("the libvirt hook %s is older than this volferryd, and refuses the guests that it wakes; install the one that came with it", d.hook)
	}
	return nil
}

// HookWasThere reports whether libvirt found the present hook if it was started or reloaded at
// that time, which is when it looks for hooks of QEMU: the hook has to be executable, and
// must not have been changed or replaced since.
func (d *Dir) HookWasThere(at time.Time) bool {
	hooks := []string{d.hook}
	if filepath.Base(filepath.Dir(d.hook)) == "qemu.d" {
		hooks = append(hooks, filepath.Join(filepath.Dir(d.hook), "..", "qemu"))
		entries, err := os.ReadDir(filepath.Dir(d.hook))
		if err != nil {
			return false
		}
		for _, e := range entries {
			hooks = append(hooks, filepath.Join(filepath.Dir(d.hook), e.Name()))
		}
	}
	return slices.ContainsFunc(hooks, func(hook string) bool {
		var st unix.Stat_t
		if unix.Stat(hook, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
			return false
		}
		return time.Unix(st.Ctim.Unix()).Before(at)
	})
}

// InstallHook writes the hook where libvirt looks for it. It does not replace a file that
// is not Volferry's.
func (d *Dir) InstallHook(script []byte) error {
	text, err := os.ReadFile(d.hook)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("install the libvirt hook: %w", err)
	case !strings.Contains(string(text), "volferry"):
		return fmt.Errorf("install the libvirt hook: %s is another one, and is not replaced", d.hook)
	}
	if err := os.MkdirAll(filepath.Dir(d.hook), 0o755); err != nil {
		return fmt.Errorf("install the libvirt hook: %w", err)
	}
	if err := atomicfile.Write(d.hook, script, 0o755); err != nil {
		return fmt.Errorf("install the libvirt hook: %w", err)
	}
	return nil
}

// hookDirs reads from the hook's own text where it looks for guards, and which
// file would say so.
func hookDirs(hook string) (dirs []string, file string, err error) {
	text, err := os.ReadFile(hook)
	if err != nil {
		return nil, "", err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if dir, ok := strings.CutPrefix(line, "GUARD_DIR="); ok {
			dirs = []string{strings.Trim(dir, `'"`)}
		}
		if name, ok := strings.CutPrefix(line, "GUARD_DIR_FILE="); ok {
			file = strings.Trim(name, `'"`)
		}
	}
	// Like the hook, which takes a file that it cannot read for none.
	if listed, err := os.ReadFile(file); err == nil {
		dirs = slices.DeleteFunc(strings.Split(string(listed), "\n"), func(dir string) bool { return dir == "" })
	}
	return dirs, file, nil
}

// sameDir reports whether two paths name one directory, there or not yet.
func sameDir(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
