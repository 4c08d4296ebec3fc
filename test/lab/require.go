// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tools are the programs that the lab runs, with the Debian package of each.
var tools = map[string]string{
	"go":                 "golang-go", // builds the guest's program
	"libvirtd":           "libvirt-daemon",
	"virtlogd":           "libvirt-daemon",
	"virsh":              "libvirt-clients",
	"qemu-system-x86_64": "qemu-system-x86",
	"qemu-img":           "qemu-utils",
	"mkfs.ext4":          "e2fsprogs",
	"mkfs.xfs":           "xfsprogs",
	"mkfs.btrfs":         "btrfs-progs",
	"mount":              "mount",
	"umount":             "mount",
	"unshare":            "util-linux",
	"nsenter":            "util-linux",
	"sfdisk":             "fdisk",
	"mformat":            "mtools",
}

// qemuDriver matches libvirtd's QEMU driver, a package of its own on Debian.
const qemuDriver = "/usr/lib/*/libvirt/connection-driver/libvirt_driver_qemu.so"

// Missing returns what the lab needs and this machine lacks, in words for a
// person: privileges, programs, the guests' kernel. It is empty where the lab
// can run.
func Missing() []string {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root privileges")
	}
	for _, tool := range slices.Sorted(maps.Keys(tools)) {
		if tool == "go" && os.Getenv(guestProgram) != "" {
			continue
		}
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, fmt.Sprintf("%s (package %s)", tool, tools[tool]))
		}
	}
	if found, _ := filepath.Glob(qemuDriver); len(found) == 0 {
		missing = append(missing, "libvirt's QEMU driver (package libvirt-daemon-driver-qemu)")
	}
	for file, name := range map[string]string{firmware: "ovmf", bootloader: "systemd-boot-efi"} {
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, fmt.Sprintf("%s (package %s)", file, name))
		}
	}
	if _, err := user.Lookup("libvirt-qemu"); err != nil {
		missing = append(missing, "the user libvirt-qemu (package libvirt-daemon-system)")
	}
	if _, err := os.Stat(filepath.Join(cacheDir(), "kernel", "package")); err != nil {
		missing = append(missing, "the guests' kernel")
	}
	return missing
}

// Require skips the test, or fails it as SkipOrFail does, where the lab cannot run.
func Require(tb testing.TB) {
	tb.Helper()
	missing := Missing()
	if len(missing) == 0 {
		return
	}
	SkipOrFail(tb, "the lab needs "+strings.Join(missing, ", ")+"; run test/lab/install.sh as root")
}

// SkipOrFail skips a test that cannot run on this machine, and prints the reason. With
// VOLFERRY_LAB=require in the environment, as in CI, it fails the test instead: a suite
// that quietly skips everything proves nothing.
func SkipOrFail(tb testing.TB, reason string) {
	tb.Helper()
	if os.Getenv("VOLFERRY_LAB") == "require" {
		tb.Fatal(reason)
	}
	tb.Skip("SKIPPED: " + reason)
}
