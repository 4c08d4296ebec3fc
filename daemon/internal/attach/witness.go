// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Bounds of a second look: QEMU closes the image of a disk that is gone only when the
// last write has reached it.
const (
	witnessPoll     = 50 * time.Millisecond
	witnessPatience = 30 * time.Second
)

// sure is look that asks the kernel as well what the guest's process has open: a
// libvirtd that died inside a call comes back with its old status, and never sees
// a disk that the guest has got meanwhile. It looks again for a while if the two
// disagree, or if a call on the process is under way, which may be one of ours whose answer was
// lost; in the end the outcome is unknown. Its errors are typed for the runner.
func (m *machine) sure(ctx context.Context, in *input) (*view, error) {
	for until := time.Now().Add(witnessPatience); ; {
		v, err := m.look(ctx, in)
		if err != nil {
			return nil, err
		}
		open, err := m.hasOpen(ctx, in)
		if err != nil {
			return nil, err
		}
		occupied := v.dom != nil && v.dom.Occupied
		switch over := !time.Now().Before(until); {
		case v.agrees(open) && !occupied:
			return v, nil
		case over && occupied:
			return nil, op.WaitFor(request.WaitHypervisor, api.Errorf(api.CodeInstanceBusy, "a call of libvirt on instance %s is under way", in.InstanceName))
		case over:
			return nil, op.UnknownOutcome(in.disagree(open))
		}
		if err := request.Sleep(ctx, witnessPoll); err != nil {
			return nil, err
		}
	}
}

// hasOpen says whether the guest's process has the image open.
func (m *machine) hasOpen(ctx context.Context, in *input) (bool, error) {
	files, err := m.HV.OpenFiles(ctx, in.InstanceID, in.Location.Path)
	switch {
	case errors.Is(err, hv.ErrNotActive), errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, op.WaitFor(request.WaitHypervisor, fmt.Errorf("see what instance %s has open: %w", in.InstanceName, err))
	}
	return len(files) > 0, nil
}

// agrees says whether both witnesses can be right. Of what somebody else has made of
// the disk nothing can be said.
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
