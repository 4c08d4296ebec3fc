// SPDX-License-Identifier: Apache-2.0

package lockd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/qemuconf"
)

// The lock managers of libvirt's QEMU driver (lock_manager in qemu.conf).
const (
	lockNothing = "nop"
	lockLockd   = "lockd"
)

// Settings are the settings of libvirt's locks on images.
type Settings struct {
	manager string
	// Auto: disk images have leases, in addition to a definition's <lease> elements. required: a
	// guest without leases is refused.
	Auto, required bool
	// files is the lockspace of image files, empty for leases on the images themselves. volumes
	// and luns are the lockspaces of logical volumes and SCSI devices.
	files, volumes, luns string
}

// Read reads qemu.conf and qemu-lockd.conf in the parent of the directory of definitions.
func Read(definitions string) (Settings, error) {
	qemu, err := qemuconf.Read(qemuconf.Path(definitions))
	if err != nil {
		return Settings{}, err
	}
	c := Settings{manager: qemu["lock_manager"]}
	if c.manager == lockNothing {
		c.manager = ""
	}
	if !c.Used() {
		return c, nil
	}
	lockd, err := qemuconf.Read(filepath.Join(filepath.Dir(definitions), "qemu-lockd.conf"))
	if err != nil {
		return Settings{}, err
	}
	c.Auto = lockd.On("auto_disk_leases", true)
	c.required = lockd.On("require_lease_for_disks", !c.Auto)
	c.files, c.volumes, c.luns = lockd["file_lockspace_dir"], lockd["lvm_lockspace_dir"], lockd["scsi_lockspace_dir"]
	return c, nil
}

// Used reports whether libvirt locks images with lockd.
func (c Settings) Used() bool { return c.manager == lockLockd }

// Unswitchable returns why libvirt would not resume a suspended guest after a switch of its disk
// to one of these images. It is empty if a running guest may be switched to them.
func (c Settings) Unswitchable(images ...string) string {
	switch {
	case c.manager == "":
		return ""
	case !c.Used():
		return fmt.Sprintf("libvirt locks images with %s (lock_manager in qemu.conf), with which nobody knows whether a guest can be resumed on another image", c.manager)
	case !c.Auto && c.required:
		return "libvirt has leases only for what a definition names (auto_disk_leases in qemu-lockd.conf is 0), and refuses a guest another image without one (require_lease_for_disks)"
	}
	for _, path := range images {
		if c.Auto && strings.HasPrefix(path, "/dev") && (c.volumes != "" || c.luns != "") {
			return "libvirt locks devices by their LVM or SCSI identity (lvm_lockspace_dir, scsi_lockspace_dir in qemu-lockd.conf), and Volferry does not know the leases of such"
		}
	}
	return ""
}

// LeaseOf returns the lease of a disk, nil if it has none or the lease's name is unknown.
func (c Settings) LeaseOf(disk *hv.Disk) *Lease {
	top := disk.Top()
	if !c.Auto || disk.ReadOnly || top.Path == "" || top.Type != hv.SourceFile && top.Type != hv.SourceBlock ||
		strings.HasPrefix(top.Path, "/dev") && (c.volumes != "" || c.luns != "") {
		return nil
	}
	l := &Lease{Name: top.Path, Shared: disk.Shareable}
	if c.files != "" {
		sum := sha256.Sum256([]byte(top.Path))
		l.Lockspace, l.Name, l.AutoCreate = c.files, hex.EncodeToString(sum[:]), true
	}
	return l
}

// Needless lists the leases of images that a disk has before or after a change, if the domain does
// not need them after the change. libvirt drops the lease of the top image when it suspends the
// guest. So a lease of an unchanged top image is not listed: it means that the guest was resumed
// meanwhile. A new top image (newTop) has a needless lease while the guest is suspended.
func (c Settings) Needless(before, after *hv.Domain, target string, newTop bool) []Lease {
	now := after.LiveDisk(target)
	if now == nil {
		return nil
	}
	var needed, images []hv.Image
	if !newTop || after.State != hv.StatePaused { // a guest in another state keeps its leases
		needed = append(needed, now.Top())
	}
	if now.Mirror != nil { // whether the guest runs or not
		needed = append(needed, now.Mirror.Image)
	}
	for _, disk := range []*hv.Disk{before.LiveDisk(target), now} {
		if disk == nil {
			continue
		}
		images = append(images, disk.Chain...)
		if disk.Mirror != nil {
			images = append(images, disk.Mirror.Image)
		}
	}
	var leases []Lease
	for _, image := range images {
		named := *now
		named.Chain = []hv.Image{image}
		l := c.LeaseOf(&named)
		if l == nil || slices.Contains(leases, *l) ||
			slices.ContainsFunc(needed, func(n hv.Image) bool { return n.Path == image.Path }) {
			continue
		}
		leases = append(leases, *l)
	}
	return leases
}
