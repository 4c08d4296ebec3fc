// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// unprofiled are the beginnings of paths for which libvirt's helper, virt-aa-helper, makes no rule:
// a guest that AppArmor confines is not started, and no job is begun, with an image or the memory
// of a guest there.
var unprofiled = []string{
	"/bin/", "/boot/", "/etc/", "/initrd", "/lib", "/lost+found/", "/proc/", "/sbin/", "/selinux/", "/sys/", "/usr/bin/", "/usr/lib",
	"/usr/local/bin/", "/usr/local/etc/", "/usr/local/lib", "/usr/local/sbin/", "/usr/sbin/", "/usr/share/", "/vmlinuz",
}

// profiles looks for directories whose files libvirt gives no confined guest.
func (d *doctor) profiles(ctx context.Context) []api.Check {
	out := []api.Check{}
	places := d.places(ctx)
	for _, p := range append(places, place{what: "the memory of saved guests in " + d.cfg.SaveDir, dir: d.cfg.SaveDir, status: "fail"}) {
		dir, err := filepath.EvalSymlinks(p.dir)
		if err != nil {
			continue // others say that it is not there
		}
		inside := func(prefix string) bool { return strings.HasPrefix(dir+"/", prefix) }
		if !slices.ContainsFunc(unprofiled, inside) {
			continue
		}
		out = append(out, api.Check{
			Name: "security", Status: p.status, Message: fmt.Sprintf("AppArmor keeps guests from %s: libvirt makes no rule for files in %s", p.what, dir),
			Advice: "use another directory, as /var/lib, /srv or /mnt; no setting of libvirt changes that",
		})
	}
	return out
}
