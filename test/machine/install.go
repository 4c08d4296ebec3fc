// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/test/lab"
)

// CopyIn copies files and directories of the host of the test into a directory of the
// machine.
func (m *Machine) CopyIn(ctx context.Context, dir string, files ...string) error {
	if err := os.MkdirAll(m.Path(dir), 0o755); err != nil {
		return fmt.Errorf("copy into machine %s: %w", m.Name, err)
	}
	args := append([]string{"-a", "-t", m.Path(dir), "--no-preserve=ownership", "--"}, files...)
	if out, err := exec.CommandContext(ctx, "cp", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("copy into machine %s: %w: %s", m.Name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// InstallDebs has dpkg install packages, files of the host of the test.
func (m *Machine) InstallDebs(ctx context.Context, debs ...string) error {
	const dir = "/var/cache/debs"
	if err := m.CopyIn(ctx, dir, debs...); err != nil {
		return err
	}
	args := []string{"DEBIAN_FRONTEND=noninteractive", "dpkg", "--install"}
	for _, deb := range debs {
		args = append(args, filepath.Join(dir, filepath.Base(deb)))
	}
	_, err := m.Exec(ctx, "env", args...)
	return err
}

// Libvirt is the libvirtd of the machine, at which guests can be defined while it runs.
// Their files are in /var/lib/guests.
func (m *Machine) Libvirt() *lab.Connection {
	return lab.Connect(filepath.Join(m.dir, "root"), "/var/lib/guests", func(ctx context.Context, args ...string) (string, error) {
		return m.Exec(ctx, "virsh", append([]string{"-q", "-c", "qemu:///system"}, args...)...)
	})
}
