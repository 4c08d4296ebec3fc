// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

func savable(dom *hv.Domain, in *PauseInput) error {
	cannot := func(why string, args ...any) error { return subject.Forbidden("save", in.InstanceName, why, args...) }
	if err := request.AtHome("cannot save instance "+in.InstanceName, dom); err != nil {
		return err
	}
	switch {
	case !dom.Persistent:
		return cannot("its domain is transient")
	case dom.ManagedSave:
		return cannot("it was saved by libvirt, with its disks as they were then; start it, or drop that: %s", shell.Line("virsh", "managedsave-remove", "--", dom.Name))
	case dom.State == hv.StateOther:
		return api.Errorf(api.CodeInstanceBusy, "cannot save instance %s: %s", in.InstanceName, request.Unsettled(dom))
	case !uses(dom.ConfigDisk(in.Device), in.Location.Path):
		return in.chainChanged("persistent definition")
	case dom.State.Active() && !uses(dom.LiveDisk(in.Device), in.Location.Path):
		return in.chainChanged("running domain")
	case dom.State.Active() && dom.LiveDisk(in.Device).Mirror != nil:
		return api.Errorf(api.CodeInstanceBusy, "cannot save instance %s: a block job runs on its disk %s", in.InstanceName, in.Device)
	case dom.State.Active():
		if what := otherDisks(dom.Live, dom.Config, in.Device); what != "" {
			return cannot("its disk %s in its definition, and it would come back as it runs now; make the two the same", what)
		}
	}
	return nil
}

// otherDisks compares the disks of a process, or of a save image, with the definition's. It
// describes the first disk with another image, or returns "". It ignores the moving disk (target
// except), and CD-ROM and floppy drives, where media may have changed.
func otherDisks(process, config []hv.Disk, except string) string {
	defined := make(map[string]*hv.Disk)
	for i := range config {
		if d := &config[i]; d.Device == "disk" && d.Target != except {
			defined[d.Target] = d
		}
	}
	for i := range process {
		d := &process[i]
		if d.Device != "disk" || d.Target == except {
			continue
		}
		other := defined[d.Target]
		if other == nil {
			return fmt.Sprintf("%s is %s, and none", d.Target, d.Top().Path)
		}
		// One chain may be shorter than the other; their common images must be equal.
		for n := range min(len(d.Chain), len(other.Chain)) {
			if d.Chain[n] != other.Chain[n] {
				return fmt.Sprintf("%s is %s (%s), and %s (%s)", d.Target, d.Chain[n].Path, d.Chain[n].Format, other.Chain[n].Path, other.Chain[n].Format)
			}
		}
		delete(defined, d.Target)
	}
	for target, d := range defined {
		return fmt.Sprintf("%s is none, and %s", target, d.Top().Path)
	}
	return ""
}

func uses(d *hv.Disk, path string) bool {
	return d != nil && len(d.Chain) == 1 && d.Chain[0].Path == path
}

func (in *PauseInput) chainChanged(where string) error {
	return api.Errorf(api.CodeChainChanged, "disk %s in the %s of instance %s is not volume %s at %s; `%s` shows what is known",
		in.Device, where, in.InstanceName, in.VolumeName, in.Location.Path, shell.Line("volferryctl", "volume", "which", in.VolumeName))
}

// Bytes returns an upper bound for a domain's save image: its RAM and QEMU's device state.
func Bytes(dom *hv.Domain) int64 {
	if !dom.State.Active() {
		return 0
	}
	return dom.MemoryBytes + dom.MemoryBytes/10
}
