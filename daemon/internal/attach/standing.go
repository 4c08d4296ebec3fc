// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// stands makes an op wait for the operator because another program has changed its disk. The
// message has the commands that end the op.
func (in *input) stands(v *view, toBe place) error {
	return op.UnknownOutcome(in.withCommands(in.changed(v), in.mend(v, toBe)))
}

func (in *input) withCommands(err *api.Error, mend []string) *api.Error {
	if len(mend) > 0 {
		err.Message += "; put that right (`" + strings.Join(mend, "`, `") + "`)"
	} else {
		err.Message += "; put that right"
	}
	err.Message += ", and ask again, which goes on with it (`" + in.again() + "`)"
	return err
}

func (in *input) again() string {
	if in.From == "" {
		return shell.AttachVolume(in.VolumeName, in.InstanceName, in.Device, in.Root, in.Mode == api.ModeRO)
	}
	return shell.Line("volferryctl", "volume", "detach", in.VolumeName, in.InstanceName)
}

// mend returns the commands that undo another program's change of the disk, or nil. toBe is where
// the disk will then be.
func (in *input) mend(v *view, toBe place) (commands []string) {
	if v.dom == nil {
		return nil
	}
	virsh := func(words ...string) {
		commands = append(commands, shell.Line(append([]string{"virsh"}, words...)...))
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
				// Some versions of QEMU miss guest writes while such a job begins.
				suspend := v.dom.State != hv.StatePaused
				if suspend {
					virsh("suspend", "--", in.InstanceName)
				}
				virsh("blockcommit", "--base", in.Location.Path, "--active", "--pivot", "--wait", "--", in.InstanceName, d.Target)
				if suspend {
					commands = append(commands, shell.Unpause(in.InstanceName))
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
