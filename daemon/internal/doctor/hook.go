// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

func (d *Doctor) hook(ctx context.Context) api.Check {
	const name = "hook"
	err := d.Guards.Enforced()
	if err == nil {
		err = d.Guards.HookKnowsStartTokens()
	}
	if errors.Is(err, guard.ErrHookLooksElsewhere) {
		return api.Check{Name: name, Status: "warn", Message: err.Error()}
	}
	if err != nil {
		return api.Check{
			Name: name, Status: "warn", Message: err.Error(),
			Advice: "volferryctl doctor --fix; or install volferry-guard as " + d.Cfg.LibvirtHook + " (mode 0755) and restart libvirtd, which touches no running guest",
		}
	}
	process := d.libvirtProcess(ctx)
	if process == nil {
		return api.Check{
			Name: name, Status: "warn", Message: d.Cfg.LibvirtHook + " is installed; it is not known whether libvirt runs it, because the process of libvirt was not found",
			Advice: "volferryctl doctor --fix tests it",
		}
	}
	if why, proven := d.Proof.of(process); proven {
		return ok(name, "libvirt runs "+d.Cfg.LibvirtHook+" before it starts an instance: "+why)
	}
	return api.Check{
		Name: name, Status: "warn",
		Message: fmt.Sprintf("%s is installed, and %s, which looks for hooks when it starts or is reloaded, has run since %s: it may not have seen the hook",
			d.Cfg.LibvirtHook, process.Name, process.Since.UTC().Format(time.RFC3339)),
		Advice: "volferryctl doctor --fix, or " + shell.Line("systemctl", "reload", process.Name) + "; that does not touch guests",
	}
}

func (d *Doctor) libvirtProcess(ctx context.Context) *hv.DaemonProcess {
	about, err := d.HV.About(ctx)
	if err != nil {
		return nil
	}
	return about.Process
}

// WatchHook stores a proof, if any, at each connection to libvirt. The proof stays valid if a
// newer hook is installed: the libvirt process runs that too.
func (d *Doctor) WatchHook(ctx context.Context) error {
	for e := range d.HV.Events(ctx) {
		if e.Kind != hv.EventConnected || d.Guards.Enforced() != nil {
			continue
		}
		if process := d.libvirtProcess(ctx); process != nil {
			d.Proof.of(process)
		}
	}
	return nil
}
