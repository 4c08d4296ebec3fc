// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// hook reports whether libvirt asks the hook before it starts an instance: the hook is there,
// and libvirt has looked for it since.
func (d *doctor) hook(ctx context.Context) api.Check {
	const name = "hook"
	err := d.guards.Enforced()
	if err == nil {
		err = d.guards.HookKnowsStartTokens()
	}
	if errors.Is(err, guard.ErrHookLooksElsewhere) {
		return api.Check{Name: name, Status: "warn", Message: err.Error()} // which says what to do
	}
	if err != nil {
		return api.Check{
			Name: name, Status: "warn", Message: err.Error(),
			Advice: "volferryctl doctor --fix; or install volferry-guard as " + d.cfg.LibvirtHook + " (mode 0755) and restart libvirtd, which touches no running guest",
		}
	}
	process := d.libvirtProcess(ctx)
	if process == nil {
		return api.Check{
			Name: name, Status: "warn", Message: d.cfg.LibvirtHook + " is installed; whether libvirt has looked for it since is not known, for its process was not found",
			Advice: "volferryctl doctor --fix tries it",
		}
	}
	if why, proven := d.proof.of(process); proven {
		return ok(name, "libvirt asks "+d.cfg.LibvirtHook+" before it starts an instance: "+why)
	}
	return api.Check{
		Name: name, Status: "warn",
		Message: fmt.Sprintf("%s is installed, and %s, which looks for hooks when it starts or is reloaded, has run since %s: it may not have seen it",
			d.cfg.LibvirtHook, process.Name, process.Since.UTC().Format(time.RFC3339)),
		Advice: "volferryctl doctor --fix, or " + api.ShellLine("systemctl", "reload", process.Name) + "; guests are not touched by that",
	}
}

// libvirtProcess is the process of libvirt, nil if it was not found.
func (d *doctor) libvirtProcess(ctx context.Context) *hv.DaemonProcess {
	about, err := d.hv.About(ctx)
	if err != nil {
		return nil // libvirt has its own line
	}
	return about.Process
}

// watchHook takes note of each libvirt that is met with the hook in its place: a newer hook
// may be put there later, which that libvirt asks as it asked the old one.
func (d *doctor) watchHook(ctx context.Context) error {
	for e := range d.hv.Events(ctx) {
		if e.Kind != hv.EventConnected || d.guards.Enforced() != nil {
			continue
		}
		if process := d.libvirtProcess(ctx); process != nil {
			d.proof.of(process)
		}
	}
	return nil
}
