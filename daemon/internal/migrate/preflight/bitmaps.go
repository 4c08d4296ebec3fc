// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// CheckQcow2 refuses a move that would lose properties of a qcow2 src besides its data, or leave
// dst with an incomplete dirty bitmap. It notes the properties that dst will lack. dom is nil if
// no instance of this host has the volume.
func (c *Checks) CheckQcow2(ctx context.Context, s *move.Spec, dom *hv.Domain) error {
	if err := c.checkBitmapsOfDst(s); err != nil || s.Src.Format != api.FormatQcow2 {
		return err
	}
	instance := ""
	if dom != nil && dom.State.Active() {
		instance = dom.ID
	}
	if err := c.checkBitmaps(ctx, s, instance); err != nil {
		return err
	}
	has, err := c.images.Properties(s.Src.Path)
	if err != nil {
		return fmt.Errorf("look at src: %w", err)
	}
	if len(has.Layout) > 0 && s.Dst.Format == api.FormatQcow2 && s.MakesDst() {
		s.Notes = append(s.Notes, fmt.Sprintf("the destination is made with QEMU's usual options, and the source has %s", strings.Join(has.Layout, ",")))
	}
	return nil
}

// checkBitmaps refuses to lose dirty bitmaps, unless the request accepts that and the instance is
// off. instance is the running instance, or empty.
func (c *Checks) checkBitmaps(ctx context.Context, s *move.Spec, instance string) error {
	all, err := c.bitmaps(ctx, s, instance, s.Src.Path)
	if err != nil {
		return err
	}
	stays := s.Method == move.MethodMirror && s.Dst.Format == api.FormatQcow2
	switch {
	case stays:
		return cmp.Or(c.checkIdle(s, all), c.checkBitmapsBelow(ctx, s, instance, all))
	case len(all) == 0:
		return nil
	case instance != "":
		return Unsupported(s, "disk %s of instance %s has %s, and libvirt has no checkpoint of it: at the destination it would lack what was written before, and an incremental backup would be wrong without an error; %s",
			s.Target, s.InstanceName, look.BitmapNames(all), removal(s, all[0]))
	case s.Checkpoints == api.CheckpointsDrop:
		s.Notes = append(s.Notes, fmt.Sprintf("the destination does not have %s, as was asked for (--checkpoints %s): the next backup has to be a full one", look.BitmapNames(all), api.CheckpointsDrop))
		return nil
	case s.LedByRegistry():
		return Unsupported(s, "%s has %s, which the destination would not have: remove it while no guest runs (`%s`, each one); the next backup has to be a full one then",
			s.Src.Path, look.BitmapNames(all), look.RemoveBitmap("", all[0]))
	}
	return Unsupported(s, "%s has %s, which the destination would not have: say --checkpoints %s (of volume migrate, instance migrate and volume retype; a drain leaves the volume to one of these) if the next backup may be a full one",
		s.Src.Path, look.BitmapNames(all), api.CheckpointsDrop)
}

func (c *Checks) checkIdle(s *move.Spec, all []hv.StoredBitmap) error {
	idle := look.IdleBitmaps(all)
	switch {
	case len(idle) == 0:
		return nil
	case s.Checkpoints == api.CheckpointsDrop:
		s.Notes = append(s.Notes, fmt.Sprintf("the destination does not have %s, as was asked for (--checkpoints %s)", look.BitmapNames(idle), api.CheckpointsDrop))
		return nil
	}
	return Unsupported(s, "disk %s of instance %s has %s, which notes no writes, and a mirror takes along only bitmaps that do: say --checkpoints %s if the destination may lack it, or remove it: `%s`, each one",
		s.Target, s.InstanceName, look.BitmapNames(idle), api.CheckpointsDrop, look.RemoveBitmap(s.InstanceName, idle[0]))
}

// checkBitmapsBelow refuses the mirror of a linked clone if a base image has a bitmap that the
// clone lacks: dst would have it without the clone's writes.
func (c *Checks) checkBitmapsBelow(ctx context.Context, s *move.Spec, instance string, top []hv.StoredBitmap) error {
	for _, base := range s.SrcChain()[1:] {
		if base.Format != string(api.FormatQcow2) {
			continue
		}
		all, err := c.bitmaps(ctx, s, instance, base.Path)
		if err != nil {
			return err
		}
		for _, b := range all {
			if !look.HasBitmap(top, b.Name) {
				return Unsupported(s, "its base image %s has %s, and the linked clone has not: a mirror would have it, without what was written to the clone; leave out --method mirror, or stop the instance and run this again",
					base.Path, look.BitmapNames([]hv.StoredBitmap{b}))
			}
		}
	}
	return nil
}

// checkBitmapsOfDst refuses an existing dst with dirty bitmaps, which lack the writes of the move.
func (c *Checks) checkBitmapsOfDst(s *move.Spec) error {
	if s.Dst.Format != api.FormatQcow2 || s.MakesDst() {
		return nil
	}
	has, err := c.images.Properties(s.Dst.Path)
	if err != nil {
		return fmt.Errorf("look at dst: %w", err)
	}
	if len(has.Bitmaps) == 0 {
		return nil
	}
	b := hv.StoredBitmap{Name: has.Bitmaps[0], Path: s.Dst.Path}
	return Unsupported(s, "the destination %s has a dirty bitmap of its own, %.60q, by which an incremental backup of the volume would be wrong; remove it: `%s`, and each other one, or name another destination",
		s.Dst.Path, b.Name, look.RemoveBitmap("", b))
}

func (c *Checks) bitmaps(ctx context.Context, s *move.Spec, instance, path string) ([]hv.StoredBitmap, error) {
	all, err := c.look.Bitmaps(ctx, instance, path)
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return nil, request.NoHypervisor(err)
	case errors.Is(err, hv.ErrNotActive):
		return nil, api.Errorf(api.CodeInstanceBusy, "cannot migrate volume %s: instance %s was stopped in this moment; try again", s.VolumeName, s.InstanceName)
	case err != nil:
		return nil, fmt.Errorf("look for dirty bitmaps of %s: %w", path, err)
	}
	return all, nil
}

// removal describes how to keep the bitmaps of a running instance, if possible, or remove them.
func removal(s *move.Spec, b hv.StoredBitmap) string {
	remove := fmt.Sprintf("remove it: `%s`, each one (the next backup has to be a full one then)", look.RemoveBitmap(s.InstanceName, b))
	if b.Idle || s.Method != move.MethodOverlay || s.Dst.Format != api.FormatQcow2 || s.Src.IsLinkedClone() {
		return remove
	}
	return "--method mirror takes it along as it is; otherwise " + remove
}
