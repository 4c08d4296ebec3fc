// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// kernelOptions are what a machine's kernel is told. Of a processor that is emulated it does not
// believe that the counters of its cores are in step, which they are: it would read the time from
// a device, with an exit for each look at the clock. Debian's 6.1.192 takes what NVMe over TCP
// sends to itself for memory that must not be sent (a BUG in usercopy_abort, called by nvmet_tcp).
// After the BUG neither end of the connection sends anything.
const kernelOptions = "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off nvme_core.multipath=Y hardened_usercopy=off"

// kernel is one that is installed in a root.
type kernel struct {
	image   string // its path
	modules string // the directory of its modules
}

// kernelOf finds the kernel of a root.
func kernelOf(root string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(images) == 0 {
		return kernel{}, errors.Join(err, fmt.Errorf("there is no kernel below %s; run test/vm/install.sh", root))
	}
	slices.Sort(images)
	image := images[len(images)-1]
	release := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
	return kernel{image, filepath.Join(root, "lib", "modules", release)}, nil
}

// bootModules are what the first program needs to reach the root, the disks and its port.
var bootModules = []string{"virtio_pci", "9p", "9pnet_virtio", "overlay", "virtio_console", "virtio_blk"}
