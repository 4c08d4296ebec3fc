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

// DefaultHook is the installed path of the guard hook.
const DefaultHook = "/etc/libvirt/hooks/qemu.d/volferry-guard"

// ErrHookLooksElsewhere is the error of Enforced if the installed hook reads guards from other
// directories.
var ErrHookLooksElsewhere = errors.New("the guards are not where the libvirt hook looks for them")

// Enforced returns nil if the hook is installed at its path and reads guards from this directory.
// Otherwise it returns an error with the fault. HookWasThere reports whether libvirt runs the
// hook.
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

// HookKnowsStartTokens returns nil if the hook supports start tokens, or if no hook is installed.
// An older hook refuses to restore guarded guests from their save images.
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

// HookWasThere reports whether an executable QEMU hook has existed, unchanged, since before at,
// the time when libvirt was started or last reloaded. libvirt looks for hooks only then; if it
// found any, it runs all present hooks.
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

// InstallHook writes the hook at its path. It does not replace a file that is not Volferry's.
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

// hookDirs reads from the hook's text its guard directory, and the path of a file. If that file
// exists, the directories in it count instead.
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
	// An unreadable file is ignored, as the hook does.
	if listed, err := os.ReadFile(file); err == nil {
		dirs = slices.DeleteFunc(strings.Split(string(listed), "\n"), func(dir string) bool { return dir == "" })
	}
	return dirs, file, nil
}

func sameDir(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
