// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// unprofiled are path prefixes that no rule of libvirt's virt-aa-helper permits. With an image or
// save image there, a guest confined by AppArmor does not start, and no block job begins.
var unprofiled = []string{
	"/bin/", "/boot/", "/etc/", "/initrd", "/lib", "/lost+found/", "/proc/", "/sbin/", "/selinux/", "/sys/", "/usr/bin/", "/usr/lib",
	"/usr/local/bin/", "/usr/local/etc/", "/usr/local/lib", "/usr/local/sbin/", "/usr/sbin/", "/usr/share/", "/vmlinuz",
}

func (d *Doctor) profiles(ctx context.Context) []api.Check {
	out := []api.Check{}
	for _, p := range d.placesOfGuests(ctx) {
		dir, err := filepath.EvalSymlinks(p.dir)
		if err != nil {
			continue // another check reports it
		}
		inside := func(prefix string) bool { return strings.HasPrefix(dir+"/", prefix) }
		if !slices.ContainsFunc(unprofiled, inside) {
			continue
		}
		out = append(out, api.Check{
			Name: "security", Status: p.status, Message: fmt.Sprintf("AppArmor denies guests access to %s: libvirt makes no rule for files in %s", p.what, dir),
			Advice: "use another directory, for example in /var/lib, /srv or /mnt; no setting of libvirt changes that",
		})
	}
	return out
}
