// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
)

// agreement bounds the wait until libvirt and the kernel agree: QEMU closes a removed disk's image
// only after its last write.
var agreement = witness.Retry{Poll: 50 * time.Millisecond, Bound: 30 * time.Second}

// sure reads the domain as look does, and checks with the kernel (QEMU for a network image)
// whether the guest has the image open. libvirt may not show a disk that the guest has. Errors are
// typed for the runner.
func (e *env) sure(ctx context.Context, in *input) (*view, error) {
	return witness.Agreed(ctx, agreement, in.InstanceName, func(ctx context.Context) (h witness.Heard[*view], err error) {
		if h.View, err = e.look(ctx, in); err != nil {
			return h, err
		}
		h.Occupied = h.View.dom != nil && h.View.dom.Occupied
		held, err := witness.Look(ctx, e.Processes, in.InstanceID, in.InstanceName, in.Location.Path)
		if err != nil {
			return h, err
		}
		if !h.View.agrees(held.Open) {
			h.Disagree = in.disagree(held.Open)
		}
		return h, nil
	})
}

// agrees reports whether libvirt's view can be right. open is true if the guest has the image
// open. After another program's change of the disk it returns true, because the two cannot be
// compared.
func (v *view) agrees(open bool) bool {
	return v.live == odd || open == (v.active && v.live == attached)
}

func (in *input) disagree(open bool) *api.Error {
	libvirt, kernel := "with", "does not have"
	if open {
		libvirt, kernel = "without", "has"
	}
	return api.Errorf(api.CodeChainChanged,
		"libvirt has the running instance %s %s volume %s, and by the kernel's word its process %s %s open: libvirtd has probably died inside a call, and does not look again. "+
			"Nothing was undone or released. Do not save or live-migrate the instance: shut it down, start it again, and ask for the same once more (docs/how-to/recover.md)",
		in.InstanceName, libvirt, in.VolumeName, kernel, in.Location.Path)
}

func (e *env) look(ctx context.Context, in *input) (*view, error) { return look(ctx, e.Domains, in) }
