// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// loopDevices is how many loop devices a machine has nodes of. It is more than a kernel has
// in use, since one that is made while the machine runs is to be found there: its /dev is
// no devtmpfs, where the kernel would make the node.
const loopDevices = 1024

// The numbers of the loop devices: linux/major.h and linux/miscdevice.h.
const (
	loopMajor        = 7
	miscMajor        = 10
	loopControlMinor = 237
)

// giveDevices gives the machine, which has booted, the devices that it is to have, and its
// systemd the means to keep devices from units.
func (m *Machine) giveDevices(ctx context.Context) error {
	if err := m.mayKeepDevices(ctx); err != nil || !m.loops {
		return err
	}
	return m.makeLoopDevices()
}

// mayKeepDevices lets the systemd of the machine, which has booted, keep devices from its
// units, as their DevicePolicy= says. nspawn has made that hierarchy read-only, and systemd
// looks for it as it begins.
func (m *Machine) mayKeepDevices(ctx context.Context) error {
	_, err := m.Script(ctx, "! [ -d "+devicesHierarchy+" ] || { mount -o remount,bind,rw "+devicesHierarchy+"; systemctl daemon-reexec; }")
	return err
}

// makeLoopDevices makes the nodes of the loop devices in the machine, which runs.
func (m *Machine) makeLoopDevices() error {
	errs := []error{m.mknod("loop-control", unix.S_IFCHR, miscMajor, loopControlMinor)}
	for n := range uint32(loopDevices) {
		errs = append(errs, m.mknod(fmt.Sprintf("loop%d", n), unix.S_IFBLK, loopMajor, n))
	}
	return errors.Join(errs...)
}

// mknod makes a node in the machine's /dev.
func (m *Machine) mknod(name string, kind, major, minor uint32) error {
	path := fmt.Sprintf("/proc/%d/root/dev/%s", m.leader, name)
	const mode = 0o660
	if err := unix.Mknod(path, kind|mode, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("make /dev/%s: %w", name, err)
	}
	return nil
}
