// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// privateDirs maps the directories below a lab's own to the places where its
// daemons see them. The host's are not visible to the daemons, and theirs not
// to the host; everything else is the same for both.
var privateDirs = []struct{ name, seenAt string }{
	{"run", "/run/libvirt"},
	{"etc", "/etc/libvirt"},
	{"lib", "/var/lib/libvirt"},
	{"log", "/var/log/libvirt"},
	{"cache", "/var/cache/libvirt"},
}

// virtlockdConf is the configuration of virtlockd, which a lab has that uses it.
const virtlockdConf = "virtlockd.conf"

// configFiles are the contents of the lab's /etc/libvirt. QEMU runs as on a host
// with the packages' defaults: as an unprivileged user, to which libvirt gives the
// images while a guest has them (dynamic ownership) and takes them back afterwards.
// Only cgroups and security modules are left out, which a container may not have; a lab
// that is Confined has both.
var configFiles = map[string]string{
	"libvirtd.conf": `unix_sock_group = "root"
unix_sock_rw_perms = "0700"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "2:file:/var/log/libvirt/libvirtd.log"
`,
	"virtlogd.conf": `log_outputs = "2:file:/var/log/libvirt/virtlogd.log"
`,
	"qemu.conf": `security_driver = "none"
cgroup_controllers = []
`,
}

// layOut makes the private directories below dir and the configuration in them.
// What is there from an earlier start, domains for example, stays.
func layOut(dir string) error {
	for _, d := range privateDirs {
		// 0755: QEMU's user passes through.
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, d.name), 0o755), labelLike(filepath.Join(dir, d.name), d.seenAt)); err != nil {
			return fmt.Errorf("lay out lab: %w", err)
		}
	}
	hooks := filepath.Join(dir, "etc", "hooks")
	if err := errors.Join(os.MkdirAll(hooks, 0o755), labelLike(hooks, "/usr/bin")); err != nil { // the label that the package gives the hook
		return fmt.Errorf("lay out lab: %w", err)
	}
	for name, content := range configFiles {
		if name == "qemu.conf" && Confined() {
			continue // the one of the package says nothing
		}
		path := filepath.Join(dir, "etc", name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("lay out lab: %w", err)
		}
	}
	return nil
}
