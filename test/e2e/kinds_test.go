// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/test/kinds"
)

// noteMove says in the log of the test between which kinds of storage a volume was moved.
func (h *host) noteMove(t *testing.T, m api.Migration, guest string) {
	t.Helper()
	if m.Dst.IsLinkedClone() {
		h.clones[m.Dst.Path] = true
	}
	t.Log(kinds.Move{From: h.kindOf(t, m.Src), To: h.kindOf(t, m.Dst), Guest: guest, End: string(m.State)})
}

// noteMove is that of a move of a disk of the guest.
func (g *guest) noteMove(t *testing.T, m api.Migration) {
	t.Helper()
	state := g.state(t)
	if state == "shut off" {
		state = string(api.InstanceStopped)
	}
	g.host.noteMove(t, m, state)
}

// kindOf is the kind of storage of a location, in words.
func (h *host) kindOf(t *testing.T, l api.Location) string {
	t.Helper()
	kind := h.kindAt(t, l)
	if l.IsSlice() && !strings.HasSuffix(kind, larger) {
		kind += larger
	}
	return kind
}

// larger ends the kind of storage of which the volume is the beginning.
const larger = ", larger"

func (h *host) kindAt(t *testing.T, l api.Location) string {
	t.Helper()
	d := deviceAt(l.Path)
	addressed := map[string]string{medium.RBDScheme: "RBD image", medium.NBDTCPScheme: "NBD export over TCP", medium.NBDScheme: "NBD export"}
	switch scheme := medium.Of(l.Path).Scheme; {
	case scheme != "":
		return addressed[scheme]
	case l.IsLUKS() && strings.HasPrefix(l.Path, "/dev/"):
		return "LUKS container on a device"
	case l.IsLUKS():
		return "LUKS container"
	case l.IsLinkedClone():
		return "linked clone"
	case isOnNFS(l.Path):
		return string(l.Format) + " file on NFS"
	case strings.HasPrefix(l.Path, "/dev/") && l.Format == api.FormatQcow2:
		return "qcow2 image on a device"
	case isPartition(t, l.Path):
		return "partition"
	case strings.HasPrefix(l.Path, "/dev/loop"):
		return "loop device"
	case !strings.HasPrefix(l.Path, "/dev/"):
		return string(l.Format) + " file"
	case strings.HasPrefix(l.Path, "/dev/mapper/vg-"):
		return "logical volume"
	case strings.HasPrefix(l.Path, "/dev/sd"):
		return "SCSI disk"
	case d != nil:
		return d.kind
	case l.Pool != "":
		types := map[string]string{"connector": "thin volume of a connector's pool", "logical": "logical volume of a pool"}
		return types[poolOf(t, h, l.Pool).Type]
	}
	t.Fatalf("nobody has said what %s is", l.Path)
	return ""
}

// device is one of a machine with storage (test/storage/devices.sh), by the variable of the
// environment that names it.
type device struct {
	variable, kind string
	// connected: it is there while a connector has a session with its target.
	connected bool
}

var devices = []device{
	{"THIN", "thin volume", false},
	{"THIN2", "thin volume", false},
	{"THICK", "logical volume", false},
	{"THICK2", "logical volume", false},
	{"LARGER", "logical volume" + larger, false},
	{"LARGER_THIN", "thin volume" + larger, false},
	{"LARGER_MULTIPATH", "iSCSI LUN by two paths" + larger, false},
	{"LARGER_NVME", "NVMe/TCP namespace by two paths" + larger, false},
	{"MULTIPATH", "iSCSI LUN by two paths", false},
	{"NVME", "NVMe/TCP namespace by two paths", false},
	{"NAMESPACE", "NVMe/TCP namespace, connected for it", true},
	{"NAMESPACE2", "NVMe/TCP namespace, connected for it", true},
	{"UNIT", "iSCSI LUN by two paths, connected for it", true},
	{"UNIT2", "iSCSI LUN by two paths, connected for it", true},
}

// deviceAt is the device that has this name or a link to it, nil if it is none of a machine with
// storage.
func deviceAt(path string) *device {
	i := slices.IndexFunc(devices, func(d device) bool {
		name := os.Getenv(d.variable)
		return name == path || name != "" && sameNode(name, path)
	})
	if i < 0 {
		return nil
	}
	return &devices[i]
}

// sameNode is whether two names lead to one node in /dev now.
func sameNode(a, b string) bool {
	nodeA, errA := filepath.EvalSymlinks(a)
	nodeB, errB := filepath.EvalSymlinks(b)
	return errA == nil && errB == nil && nodeA == nodeB
}
