// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

type connectSteps struct{ *env }

// stepConnect connects the location, and repeats the checks now that no other user can take it. A
// target's volume has a device only after the connection.
func (e connectSteps) stepConnect() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *input) error {
		if err := e.connectDevice(ctx, in); err != nil {
			return err
		}
		if err := e.checkLocation(ctx, in); err != nil {
			return err
		}
		return e.Images.Connect(ctx, in.Location.Path)
	}
	undo := func(ctx context.Context, _ *op.Run, in *input) error { return e.disconnect(ctx, in, e.logNotStored) }
	return step(stepNameConnect, do, undo, nil)
}

func (e connectSteps) connectDevice(ctx context.Context, in *input) error {
	return request.HV(location.Connect(ctx, e.Devices, in.Location.Path, "cannot attach volume "+in.VolumeName))
}

func (e connectSteps) stepDisconnect() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		return e.disconnect(ctx, in, func(in *input, why error) { e.auditNotStored(r.OpID(), in, why) })
	}
	return step("disconnect", do, nil, nil)
}

// disconnect disconnects the location unless a domain of this host names it, or the registry has
// another attachment of it here. If two attachments end together, the second op disconnects. If
// writes may be lost, disconnect calls notStored, and still disconnects: no later flush would
// report the loss.
func (e connectSteps) disconnect(ctx context.Context, in *input, notStored func(in *input, why error)) error {
	users, err := e.users(ctx, in.Location.Path)
	if err != nil || len(users) > 0 {
		return err
	}
	others, err := e.Registry.Attachments(ctx, in.VolumeID, "")
	switch {
	case request.Away(err):
		// No domain names the image, and a needless flush does no harm.
	case err != nil && !request.Lost(err):
		return err
	}
	for i := range others {
		o := &others[i]
		here := o.Host == in.HostName || o.Host == in.Host
		if here && o.ID != in.AttachmentID && o.State != api.AttachmentReserved {
			return nil
		}
	}
	err = e.Images.Disconnect(ctx, in.Location.Path)
	_, lost := errors.AsType[*image.NotStoredError](err)
	if lost || api.CodeOf(err) == api.CodePermissionDenied { // no flush was tried, because a link at the path is not followed
		notStored(in, err)
	} else if err != nil {
		return err
	}
	return location.Disconnect(ctx, e.Devices, in.Location.Path)
}

func (e connectSteps) logNotStored(in *input, why error) {
	e.log.Error("a volume that is disconnected may lack what its guest wrote last, if it had one", "volume", in.VolumeID, "instance", in.InstanceName, "err", why)
}

func (e connectSteps) auditNotStored(opID string, in *input, why error) {
	e.logNotStored(in, why)
	if e.Audit == nil {
		return
	}
	e.Audit(api.EventPost{
		At: time.Now(), What: "volume.not_stored", Object: "volume/" + in.VolumeID,
		OpID: uuid.NewSHA1(uuid.NameSpaceOID, []byte("volume.not_stored "+opID)).String(),
		Details: map[string]any{
			"volume_name": in.VolumeName, "instance_name": in.InstanceName, "path": in.Location.Path,
			"reason": request.EventReason(why.Error()),
		},
	})
}
