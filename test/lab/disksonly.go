// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// DefineWithDisks defines a domain with a raw disk for each of the files, which are vda, vdb and so
// on. It has no kernel: it is for what is done with domains that are off.
func (l *Libvirtd) DefineWithDisks(ctx context.Context, name string, files ...string) error {
	var xml strings.Builder
	fmt.Fprintf(&xml, "<domain type='qemu'><name>%s</name><memory unit='MiB'>32</memory><os><type arch='x86_64'>hvm</type></os><devices>", name)
	for i, file := range files {
		fmt.Fprintf(&xml, "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='%s'/><target dev='vd%c' bus='virtio'/></disk>", file, 'a'+i)
	}
	xml.WriteString("</devices></domain>")
	path := filepath.Join(l.Dir, name+".xml")
	if err := os.WriteFile(path, []byte(xml.String()), 0o600); err != nil {
		return fmt.Errorf("define %s: %w", name, err)
	}
	_, err := l.Virsh(ctx, "define", path)
	return errors.Join(err, os.Remove(path))
}
