// SPDX-License-Identifier: Apache-2.0

// Package machine gives a test Debian machines: systemd is PID 1 in them, with
// Debian's own libvirtd as its packages configure it, and dpkg installs what is tested.
// They are containers of systemd-nspawn with a network of their own.
//
//	net, err := machine.NewNetwork(ctx)
//	m, err := machine.New(ctx, filepath.Join(lab.TempDir(t), "hv1"), machine.Config{Name: "hv1"})
//	err = m.Boot(ctx)
//	err = net.Connect(ctx, m, "192.0.2.1/24")
//	out, err := m.Exec(ctx, "systemctl", "is-active", "libvirtd.socket")
//	err = m.Close()
//
// In a test Start does the first two, and closes the machine with the test, with its
// journal in the log of a test that failed.
//
// install.sh makes the root that all machines begin with, once: each has an overlay
// over it, and a copy of /var on the file system of its directory. Against the packages'
// configuration qemu.conf has one line more: QEMU gets no cgroups, which a container may
// not make. What is not like a real host: the kernel, the clock and the page cache are
// those of the host of the test, there is no udev, no AppArmor and no KVM.
//
// Like package lab it knows systemd, libvirt and the kernel, and must not know Volferry.
package machine
