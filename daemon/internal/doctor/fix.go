// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/programs"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// Fixes makes the safe repairs, in this order: the daemon's directories, the hook, libvirt's use
// of the hook. It changes no guest, pool or setting.
func (d *Doctor) Fixes(ctx context.Context) []api.Fix {
	d.fixing.Lock()
	defer d.fixing.Unlock()
	d.awaitLibvirt(ctx) // the checks report a silent libvirt
	out := []api.Fix{}
	for _, dir := range d.Cfg.OwnDirs() {
		out = append(out, fixMissing(dir)...)
		out = append(out, fixTooOpen(dir)...)
	}
	out = append(out, d.fixPassage(ctx)...)
	out = append(out, d.fixHook(ctx)...)
	return append(out, d.fixHookUnseen(ctx)...)
}

func fixed(f api.Fix, after string, err error) []api.Fix {
	f.Status, f.After = "fixed", after
	if err != nil {
		f.Status, f.After = "failed", err.Error()
	}
	return []api.Fix{f}
}

func fixMissing(dir config.OwnDir) []api.Fix {
	if !dir.Missing() {
		return nil
	}
	fix := api.Fix{Name: "directories", Before: dir.Path + " is missing", Action: fmt.Sprintf("create it (mode %04o)", dir.Mode)}
	return fixed(fix, dir.Path+" exists", config.MakeDir(dir.Path, dir.Mode))
}

func fixTooOpen(dir config.OwnDir) []api.Fix {
	has, extra := dir.TooOpen()
	if extra == 0 {
		return nil
	}
	return chmod("directories", dir.Path, has, has&^extra)
}

func chmod(name, dir string, from, to fs.FileMode) []api.Fix {
	fix := api.Fix{Name: name, Before: fmt.Sprintf("%s has mode %04o", dir, from), Action: fmt.Sprintf("chmod %04o %s", to, dir)}
	return fixed(fix, fmt.Sprintf("%s has mode %04o", dir, to), os.Chmod(dir, to))
}

// fixPassage makes the daemon's directories, but not their parents, traversable for QEMU's user,
// who opens the overlays.
func (d *Doctor) fixPassage(ctx context.Context) []api.Fix {
	user, confined, err := hv.ConfinedUser(ctx, d.HV, "")
	if err != nil || !confined {
		return nil
	}
	out := []api.Fix{}
	var blocked *image.ReachError
	for errors.As(d.Storage.Reach(user, d.Cfg.Overlays()), &blocked) {
		own := []string{filepath.Clean(d.Cfg.StateDir), filepath.Clean(d.Cfg.Overlays())}
		if !slices.Contains(own, blocked.Dir) {
			return out
		}
		more := chmod("qemu", blocked.Dir, blocked.Mode, blocked.Mode|0o001)
		if out = append(out, more...); more[0].Status != "fixed" {
			return out
		}
	}
	return out
}

func (d *Doctor) fixHook(ctx context.Context) []api.Fix {
	err := d.Guards.Enforced()
	if err == nil {
		err = d.Guards.HookKnowsStartTokens()
	}
	if err == nil || errors.Is(err, guard.ErrHookLooksElsewhere) {
		return nil // ErrHookLooksElsewhere depends on settings
	}
	fix := api.Fix{Name: "hook", Before: err.Error(), Action: "install " + d.Cfg.LibvirtHook + " of this version"}
	err = programs.InstallHook(ctx, d.Guards)
	return fixed(fix, d.Cfg.LibvirtHook+" is installed", err)
}

const (
	trialID    = "0d0c70f1-0000-4000-8000-766f6c666572"
	trialOwner = "doctor"
)

const seenWithin = 20 * time.Second

func (d *Doctor) fixHookUnseen(ctx context.Context) []api.Fix {
	if d.Guards.Enforced() != nil {
		return nil
	}
	process := d.libvirtProcess(ctx)
	if process == nil {
		return d.tryHook(ctx)
	}
	if _, proven := d.Proof.of(process); proven {
		return nil
	}
	fix := api.Fix{
		Name: "hook", Before: fmt.Sprintf("%s (process %d) may not have seen the hook: the process has run since %s", process.Name, process.PID, process.Since.UTC().Format(time.RFC3339)),
		Action: "reload libvirt, so that it looks for hooks (SIGHUP, like systemctl reload), and test the hook: start a guarded domain that has no disks and no kernel",
	}
	err := unix.Kill(process.PID, unix.SIGHUP)
	if err == nil {
		err = d.trial(ctx, seenWithin)
	}
	if err == nil {
		err = d.Proof.keep(process)
	}
	return fixed(fix, "the hook has refused the test start", err)
}

func (d *Doctor) tryHook(ctx context.Context) []api.Fix {
	if !d.HV.Up() {
		return nil // libvirt has its own check
	}
	fix := api.Fix{
		Name: "hook", Before: "it is not known whether libvirt has seen the hook",
		Action: "test the hook: start a guarded domain that has no disks and no kernel",
	}
	return fixed(fix, "the hook has refused the test start", d.trial(ctx, 0))
}

var errNotAsked = errors.New("libvirt has not run the hook; restart libvirt (systemctl restart libvirtd, or virtqemud): that does not touch guests")

func (d *Doctor) trial(ctx context.Context, within time.Duration) error {
	if err := d.Guards.Set(trialID, trialOwner, "volferryctl doctor tries the hook"); err != nil {
		return err
	}
	again := func(err error) bool { return errors.Is(err, errNotAsked) }
	err := retry.Do(ctx, retry.Backoff{First: 100 * time.Millisecond, Max: 2 * time.Second}, within, func() error {
		refused, err := d.HV.HookRefuses(ctx, trialID)
		if err == nil && !refused {
			return errNotAsked
		}
		return err
	}, again)
	return errors.Join(err, d.Guards.Clear(trialID, trialOwner))
}
