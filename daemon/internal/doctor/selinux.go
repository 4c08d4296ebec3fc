// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

const labelAttribute = "security.selinux"

// enforceFile has 0 while SELinux is permissive. It is a variable for the tests.
var enforceFile = "/sys/fs/selinux/enforce"

// isPermissive reports whether SELinux only logs the accesses that its policy denies.
func isPermissive() bool {
	text, err := os.ReadFile(enforceFile)
	return err == nil && strings.TrimSpace(string(text)) == "0"
}

// closedTypes are the types of directories that SELinux keeps confined guests from. libvirt labels
// images, and not their directories.
var closedTypes = []string{"default_t", "unlabeled_t", "user_home_t", "user_home_dir_t", "admin_home_t", "tmp_t"}

// labels reports directories of images with labels that keep confined guests out.
func (d *Doctor) labels(ctx context.Context) []api.Check {
	out := []api.Check{}
	for _, p := range d.placesOfGuests(ctx) {
		label, err := labelOf(p.dir)
		if errors.Is(err, unix.ENOENT) {
			continue // another check reports it
		}
		if err != nil {
			out = append(out, api.Check{
				Name: "security", Status: "warn", Message: fmt.Sprintf("the SELinux label of %s cannot be read: %v", p.dir, err),
				Advice: "use a directory on a filesystem with labels (ls -dZ shows them), or mount that filesystem with the option context=",
			})
			continue
		}
		if fields := strings.Split(label, ":"); len(fields) < 3 || !slices.Contains(closedTypes, fields[2]) {
			continue
		}
		out = append(out, api.Check{
			Name: "security", Status: p.status, Message: fmt.Sprintf("SELinux denies guests access to %s: %s has the label %s", p.what, p.dir, label),
			Advice: fmt.Sprintf("semanage fcontext -a -t virt_var_lib_t '%s(/.*)?' && restorecon -R %[1]s", p.dir),
		})
	}
	return out
}

func labelOf(dir string) (string, error) {
	value := make([]byte, 256)
	n, err := unix.Getxattr(dir, labelAttribute, value)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(value[:n]), "\x00"), nil
}
