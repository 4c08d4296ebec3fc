// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stands has an op wait for the operator because of what somebody else has made of its disk, and
// says which commands bring the op to its end. The disk is to be there as it was, or to be gone.
func (in *input) stands(v *view, toBe place) error {
	return op.UnknownOutcome(in.withCommands(in.changed(v), in.mend(v, toBe)))
}

// withCommands adds to an error the commands that put right what is wrong, and the one that goes
// on.
func (in *input) withCommands(err *api.Error, mend []string) *api.Error {
	if len(mend) > 0 {
		err.Message += "; put that right (`" + strings.Join(mend, "`, `") + "`)"
	} else {
		err.Message += "; put that right"
	}
	err.Message += ", and ask again, which goes on with it (`" + in.again() + "`)"
	return err
}

// again is the command that goes on with the op. A detach knows what the attachment was, and an
// attach does not.
func (in *input) again() string {
	if in.From == "" {
		return api.AttachLine(in.VolumeName, in.InstanceName, in.Device, in.Root, in.Mode)
	}
	return api.ShellLine("volferryctl", "volume", "detach", in.VolumeName, in.InstanceName)
}

// mend are the commands that undo what somebody else has made of the disk, in their order: nil if
// it is not known how.
func (in *input) mend(v *view, toBe place) (commands []string) {
	if v.dom == nil {
		return nil
	}
	virsh := func(words ...string) {
		commands = append(commands, api.ShellLine(append([]string{"virsh"}, words...)...))
	}
	image := location.PlaceOf(in.Location.Path)
	takeOut, committed := map[string][]string{}, map[string]bool{} // by target
	scope := func(disks []hv.Disk, flag string) {
		for i := range disks {
			d := &disks[i]
			named, err := image.NamedBy(d)
			top, topErr := image.Is(d.Top().Path)
			over := !top && slices.ContainsFunc(d.Chain, func(img hv.Image) bool { return filepath.Clean(img.Path) == filepath.Clean(in.Location.Path) })
			whole := d.Target == in.Device && top && in.overItsBases(d) && d.Mirror == nil
			switch {
			case err != nil, topErr != nil, committed[d.Target], !named && (toBe == absent || d.Target != in.Device && d.Serial != in.VolumeID), whole && toBe == attached:
			case named && d.Mirror != nil:
				virsh("blockjob", "--abort", "--", in.InstanceName, d.Target)
			case over: // a snapshot, which has the newest writes
				if !v.active {
					virsh("start", "--", in.InstanceName)
				}
				// Some versions of QEMU miss what a guest writes as such a job begins.
				suspend := v.dom.State != hv.StatePaused
				if suspend {
					virsh("suspend", "--", in.InstanceName)
				}
				virsh("blockcommit", "--base", in.Location.Path, "--active", "--pivot", "--wait", "--", in.InstanceName, d.Target)
				if suspend {
					virsh("resume", "--", in.InstanceName)
				}
				committed[d.Target] = true
			default:
				takeOut[d.Target] = append(takeOut[d.Target], flag)
			}
		}
	}
	if v.active {
		scope(v.dom.Live, "--live")
	}
	scope(v.dom.Config, "--config")
	for _, d := range slices.Concat(v.dom.Live, v.dom.Config) {
		if flags := takeOut[d.Target]; len(flags) > 0 {
			virsh(slices.Concat([]string{"detach-disk"}, flags, []string{"--", in.InstanceName, d.Target})...)
			delete(takeOut, d.Target)
		}
	}
	return commands
}
