// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/shell"
)

// looksEvery is the interval between reads of this host's images. A `virsh blockresize`, a
// `qemu-img resize` or an extended logical volume causes no event.
const looksEvery = 30 * time.Second

// Run reads the images of this host's volumes at intervals, until ctx ends. It reports the sizes
// of grown images, and missing identities of devices, to the registry.
func (m *Manager) Run(ctx context.Context) error {
	tick := time.NewTicker(looksEvery)
	defer tick.Stop()
	warned := map[string]string{}
	for {
		m.lookAtImages(ctx, warned)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// lookAtImages reads every image once. warned has the last warning by volume id, to log it once.
func (m *Manager) lookAtImages(ctx context.Context, warned map[string]string) {
	id, err := m.host(ctx)
	if err != nil {
		return // the registry does not know this host yet
	}
	host, err := m.env.Registry.Host(ctx, id)
	if err != nil {
		return
	}
	_ = m.env.Registry.EachVolume(ctx, func(v *api.Volume) error { // the next round finds missed images
		if ctx.Err() == nil && looksAfter(v, host) {
			m.lookAtOne(ctx, v, warned)
		}
		return ctx.Err()
	})
}

func (m *Manager) lookAtOne(ctx context.Context, v *api.Volume, warned map[string]string) {
	err := m.lookAt(ctx, v)
	switch {
	case err == nil:
		delete(warned, v.ID)
	case !request.Away(err) && warned[v.ID] != err.Error():
		warned[v.ID] = err.Error()
		m.log.Warn("the image of a volume is not as the registry has it", "volume", v.Name, "err", err)
	}
}

// lookAt reads a volume's image, and has the registry store its size and identity. It returns an
// error if the image is smaller than the volume, or not the volume's image. It ignores a missing
// or unreadable image.
func (m *Manager) lookAt(ctx context.Context, v *api.Volume) error {
	info, err := m.env.Images.Inspect(ctx, v.Location)
	if err != nil {
		if replaced := (*api.Error)(nil); errors.As(err, &replaced) && replaced.Code == api.CodeChainChanged {
			return err
		}
		return nil
	}
	identifies := v.Location.Identity == "" && info.Identity != ""
	if identifies || v.Location.VolumeBytes(info.SizeBytes) != v.Location.SizeBytes {
		if err := m.env.checkRecorded(ctx, *v, "cannot take over what the image of volume "+v.Name+" has"); err != nil {
			return err
		}
	}
	if err := m.openInGuests(ctx, v); err != nil {
		return err
	}
	size, err := request.TakeSize(ctx, m.env.Registry, v.ID, v.Name, v.Location, info.SizeBytes)
	if err != nil {
		return err
	}
	if size != v.SizeBytes {
		m.log.Info("a volume has grown", slog.String("volume", v.Name), slog.Int64("from_bytes", v.SizeBytes), slog.Int64("to_bytes", size))
	}
	if !identifies {
		return nil
	}
	_, err = m.env.Registry.IdentifyVolume(ctx, uuid.NewString(), v.ID, api.VolumeIdentify{Path: v.Location.Path, Identity: info.Identity})
	if refused := (*api.Error)(nil); errors.As(err, &refused) && refused.Code == api.CodeMigrationActive {
		return nil // a move has begun, which is no fault of the image
	}
	return err
}

// openInGuests refuses the image at the volume's path if a running guest of the volume does not
// have it open: another image has the path now.
func (m *Manager) openInGuests(ctx context.Context, v *api.Volume) error {
	if !medium.Of(v.Location.Path).Witnessed {
		return nil
	}
	for i := range v.Attachments {
		a := &v.Attachments[i]
		if a.State != api.AttachmentAttached {
			continue // an op is changing it
		}
		held, err := witness.Look(ctx, m.env.Guests, a.InstanceID, a.InstanceName, v.Location.Path)
		if err != nil {
			return fmt.Errorf("see whether instance %s has %s open: %w", a.InstanceName, v.Location.Path, err)
		}
		if held.Process && !held.Open {
			return api.Errorf(api.CodeChainChanged, "instance %s does not have open what is at %s now, where volume %s is: another image has that name by now. Its size and its identity are not taken for the volume's. "+
				"Do not stop the instance before the right image is at this path again; `%s` shows what is known", a.InstanceName, v.Location.Path, v.Name, shell.Line("volferryctl", "volume", "which", v.Name))
		}
	}
	return nil
}

// looksAfter reports whether this host reads the image of a volume: it has a guest of the volume
// or, for an unattached volume, the image. It returns false for a moving volume.
func looksAfter(v *api.Volume, host api.Host) bool {
	mine := func(name string) bool { return name == host.Name || name == host.ID }
	if v.MigrationID != "" || v.Location.Path == "" || (v.Status != api.VolumeAvailable && v.Status != api.VolumeInUse) {
		return false
	}
	if len(v.Attachments) == 0 {
		return mine(v.Host)
	}
	return slices.ContainsFunc(v.Attachments, func(a api.Attachment) bool { return mine(a.Host) })
}
