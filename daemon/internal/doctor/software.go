// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/daemon/internal/storagedaemon"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

type knownBug struct {
	on                  func(hv.About, *config.Config) bool
	name, means, advice string
	status              string
}

var hooksDirSince = hv.Version{Major: 6, Minor: 5}

// The oldest versions that the tests use.
var testedLibvirt, testedQEMU = hv.Version{Major: 9}, hv.Version{Major: 7, Minor: 2}

// jobStartBug returns two entries for a QEMU bug that harms a running guest when a block job
// begins: one for a host where Volferry suspends the guest meanwhile, and one for
// suspend_at_job_start = never. has reports whether a QEMU has the bug.
func jobStartBug(name string, has func(hv.JobStart) bool, held, advice, unheld string) []knownBug {
	on := func(suspended bool) func(hv.About, *config.Config) bool {
		return func(a hv.About, c *config.Config) bool {
			return a.QEMU != hv.Version{} && has(hv.JobStartOf(a.QEMU)) && has(c.JobStart(a.QEMU)) == suspended
		}
	}
	return []knownBug{
		{on: on(true), name: name, means: held, advice: advice, status: "ok"},
		{
			on: on(false), name: name, means: "suspend_at_job_start is never, so " + unheld,
			advice: "unless the package of QEMU has that commit, set suspend_at_job_start to auto", status: "warn",
		},
	}
}

var knownBugs = slices.Concat([]knownBug{
	{
		on: func(a hv.About, c *config.Config) bool {
			return a.Libvirt.Before(hooksDirSince) && filepath.Base(filepath.Dir(c.LibvirtHook)) == "qemu.d"
		},
		name:   "libvirt before 6.5.0 runs no hook in qemu.d",
		means:  "an instance can be started while its overlay is being folded",
		advice: "upgrade libvirt; or install volferry-guard as /etc/libvirt/hooks/qemu, and set libvirt_hook to that path",
		status: "fail",
	},
	{
		on: func(a hv.About, _ *config.Config) bool {
			return slices.Contains(a.SecurityModels, "apparmor") && hv.DeniesBelow(a.Libvirt)
		},
		name:   "libvirt before 12.1.0 with AppArmor denies a guest to write to the image below its overlay (gitlab.com/libvirt/libvirt issue 806)",
		means:  "Volferry moves one volume of a confined guest at a time, and attaches and detaches none meanwhile. If a guest was started while its volume moved, or lost a disk by another program, or if the block job of a complete runs, migration cancel cannot fold the overlay back, and is refused, and so is a later move of the running guest back to that image; the refusal names the rule to remove",
		advice: "upgrade libvirt; or stop the instance before such a cancel; or follow the advice of the refusal",
		status: "warn",
	},
}, jobStartBug(
	"QEMU 8.0 to 10.2 may miss a write that is under way when a block copy begins (fixed by commit 0f51f9c342, mirror: Fix missed dirty bitmap writes during startup, in 10.0.9, 10.2.2 and 11.0)",
	func(s hv.JobStart) bool { return s.LosesWrites },
	"Volferry suspends a guest with this QEMU while the copy of a fold or of a mirror begins, mostly for some milliseconds, so no write is lost",
	"no action is needed; a QEMU with that commit in its changelog makes this suspension unnecessary",
	"writes of a busy guest at the moment when a fold or a mirror begins may be missing in the destination",
), jobStartBug(
	"the process of a guest with I/O threads may end at the start of a block copy with QEMU before 8.0 (fixed by its commit 32125b1460)",
	func(s hv.JobStart) bool { return s.KillsGuest },
	"Volferry suspends a guest with this QEMU and with I/O threads while the copy of a fold or of a mirror begins, mostly for some milliseconds",
	"no action is needed; QEMU 8.0 or later does not end the process (with 8.0 to 10.2 Volferry suspends guests too, because these may miss a write)",
	"the process of a guest with I/O threads may end when a fold or a mirror begins",
), []knownBug{
	{
		on:     func(a hv.About, _ *config.Config) bool { return a.Libvirt.Before(testedLibvirt) },
		name:   "libvirt is older than " + testedLibvirt.String() + ", the oldest that Volferry is tested with",
		means:  "its behaviour in a move is not tested",
		advice: "upgrade it, or first try a move of an unimportant guest",
		status: "warn",
	},
	{
		on:     func(a hv.About, _ *config.Config) bool { return a.QEMU != hv.Version{} && a.QEMU.Before(testedQEMU) },
		name:   "QEMU is older than " + testedQEMU.String() + ", the oldest that Volferry is tested with",
		means:  "its behaviour in a move is not tested",
		advice: "upgrade it, or first try a move of an unimportant guest",
		status: "warn",
	},
})

const libvirtStartTimeout = 10 * time.Second

func (d *Doctor) awaitLibvirt(ctx context.Context) bool {
	up, _ := retry.Poll(ctx, 100*time.Millisecond, libvirtStartTimeout, func() (bool, error) { return d.HV.Up(), nil })
	return up
}

func (d *Doctor) libvirt(ctx context.Context) []api.Check {
	const name = "libvirt"
	if !d.awaitLibvirt(ctx) {
		return []api.Check{{
			Name: name, Status: "fail", Message: "libvirt does not answer, even after a wait of " + libvirtStartTimeout.String() + " for its start",
			Advice: "systemctl status libvirtd (or virtqemud): if it is activating, wait, and run doctor again; if it is not active, start it; or set libvirt_socket",
		}}
	}
	about, err := d.HV.About(ctx)
	if err != nil {
		return []api.Check{{Name: name, Status: "fail", Message: err.Error(), Advice: "systemctl status libvirtd"}}
	}
	qemu := api.Check{Name: "QEMU", Status: "fail", Message: "libvirt finds no QEMU to start a guest with", Advice: "apt-get install qemu-system-x86, or the package of this host's architecture"}
	if about.QEMU != (hv.Version{}) {
		qemu = ok("QEMU", about.QEMU.String())
	}
	out := []api.Check{ok(name, "connected, libvirt "+about.Libvirt.String()), qemu}
	for _, bug := range knownBugs {
		if bug.on(about, d.Cfg) {
			out = append(out, api.Check{Name: "known bug", Status: bug.status, Message: bug.name + ": " + bug.means, Advice: bug.advice})
		}
	}
	return append(append(out, d.security(ctx, about)...), d.leases(ctx)...)
}

// leases checks that libvirt's lock manager, if any, permits a move to switch a running guest's
// disks to other images.
func (d *Doctor) leases(ctx context.Context) []api.Check {
	const name = "lock manager"
	// One device stands for all devices. Some lock managers give devices other names than files.
	for _, image := range []string{"/", "/dev/any"} {
		if err := d.HV.CanSwitch(ctx, image); err != nil {
			which := "volumes"
			if strings.HasPrefix(image, "/dev") {
				which = "volumes on devices"
			}
			return []api.Check{{
				Name: name, Status: "fail", Message: fmt.Sprintf("%s cannot be moved while their instances run: %v", which, err),
				Advice: "stop the instances before the moves; or change that setting, and restart libvirt",
			}}
		}
	}
	return nil
}

func (d *Doctor) security(ctx context.Context, about hv.About) []api.Check {
	const name = "security"
	out := []api.Check{}
	if len(about.SecurityModels) == 0 {
		out = append(out, ok(name, "libvirt does not confine QEMU"))
	} else {
		out = append(out, ok(name, "libvirt confines QEMU with "+strings.Join(about.SecurityModels, ", ")))
	}
	if slices.ContainsFunc(about.SecurityModels, func(model string) bool { return model != "dac" }) {
		out = append(out, d.confinements(ctx)...)
	}
	if !about.GivesImages {
		out = append(out, api.Check{
			Name: name, Status: "warn", Message: "dynamic_ownership is 0 in qemu.conf: libvirt does not make QEMU's user the owner of images, also of overlays",
			Advice: "give QEMU's user access to new files in the overlay directory and in the pools (setfacl -d -m u:USER:rw DIR), or set dynamic_ownership to 1",
		})
	} else if !about.RemembersOwners {
		out = append(out, api.Check{
			Name: name, Status: "warn", Message: "remember_owner is 0 in qemu.conf: after a guest has closed an image, the owner of the image stays as libvirt sets it, mostly root",
			Advice: "after a move, give a source that other programs use back to its owner, or set remember_owner to 1",
		})
	}
	if slices.Contains(about.SecurityModels, "apparmor") {
		out = append(out, d.profiles(ctx)...)
	}
	if slices.Contains(about.SecurityModels, "selinux") {
		out = append(out, d.labels(ctx)...)
	}
	return out
}

func (d *Doctor) qemuImg() api.Check {
	return programOfQEMU(qemuimg.Program, "qemu-utils", qemuimg.Find)
}

func (d *Doctor) storageDaemon() api.Check {
	return programOfQEMU(storagedaemon.Program, "qemu-system-common", storagedaemon.Find)
}

func programOfQEMU(name, debian string, find func() (string, error)) api.Check {
	path, err := find()
	if err != nil {
		return api.Check{Name: name, Status: "fail", Message: name + " is not installed", Advice: "apt-get install " + debian}
	}
	return ok(name, path)
}
