// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// A backup program finds in the dirty bitmaps of a qcow2 image the blocks written since its last
// backup. A copy of a frozen src has no bitmaps. libvirt creates empty bitmaps with the same names
// in an overlay, and merges them into dst at the pivot. They lack older writes, so a backup by
// them would be wrong without an error. A mirror of a whole image, and a commit, keep the bitmaps
// that record.

// Bitmaps returns each dirty bitmap of an image once: from its header, and from the process of an
// active instance, which has some only in memory. instance is empty if no process has the image
// open.
func (e *Env) Bitmaps(ctx context.Context, instance, path string) ([]hv.StoredBitmap, error) {
	var all []hv.StoredBitmap
	if instance != "" {
		open, err := e.chains.StoredBitmaps(ctx, instance)
		if err != nil {
			return nil, err
		}
		for _, b := range open {
			if b.Path == path || b.Path == "" { // QEMU does not report its image
				all = append(all, b)
			}
		}
	}
	header, err := e.images.Properties(path)
	if err != nil {
		return nil, err
	}
	for _, name := range header.Bitmaps {
		if !HasBitmap(all, name) {
			all = append(all, hv.StoredBitmap{Name: name, Path: path})
		}
	}
	return all, nil
}

// HasBitmap reports whether the list has a bitmap with this name.
func HasBitmap(all []hv.StoredBitmap, name string) bool {
	return slices.ContainsFunc(all, func(b hv.StoredBitmap) bool { return b.Name == name })
}

// IdleBitmaps returns the bitmaps that record nothing, which a mirror omits.
func IdleBitmaps(all []hv.StoredBitmap) []hv.StoredBitmap {
	return slices.DeleteFunc(slices.Clone(all), func(b hv.StoredBitmap) bool { return !b.Idle })
}

// BitmapNames names bitmaps for messages.
func BitmapNames(all []hv.StoredBitmap) string {
	const most = 5
	var names []string
	for _, b := range all[:min(most, len(all))] {
		names = append(names, fmt.Sprintf("%.60q", b.Name))
	}
	text := "the dirty bitmap "
	if len(all) > 1 {
		text = "the dirty bitmaps "
	}
	text += strings.Join(names, ", ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// RemoveBitmap returns the command that removes a dirty bitmap: through the instance's QEMU if it
// has the image open, otherwise from the file.
func RemoveBitmap(instanceName string, b hv.StoredBitmap) string {
	if instanceName == "" || b.Node == "" {
		return shell.Line("qemu-img", "bitmap", "-f", string(api.FormatQcow2), "--remove", "--", b.Path, b.Name)
	}
	command, err := json.Marshal(map[string]any{"execute": "block-dirty-bitmap-remove", "arguments": map[string]string{"node": b.Node, "name": b.Name}})
	if err != nil { // of strings alone
		return ""
	}
	return shell.Line("virsh", "qemu-monitor-command", "--", instanceName, string(command))
}

// CheckBitmapsKept refuses the end of a move if dst would lack a dirty bitmap that was made since
// preflight, or have an incomplete one.
func (e *Env) CheckBitmapsKept(ctx context.Context, s *move.Spec, active bool) error {
	instance := ""
	if active {
		instance = s.InstanceID
	}
	if s.Src.Format != api.FormatQcow2 {
		// src has no bitmaps. The QEMU of a paused guest is not asked: libvirt moves the overlay's
		// bitmaps only to a qcow2 image.
		if instance != "" || s.Overlay == "" {
			return nil
		}
		made, err := e.Bitmaps(ctx, "", s.Overlay)
		return errOrLost(s, made, err)
	}
	src, err := e.Bitmaps(ctx, instance, s.Src.Path)
	if err != nil {
		return e.move.HVError(err)
	}
	if s.Method != move.MethodOverlay {
		if instance != "" && s.Dst.Format == api.FormatQcow2 { // a mirror
			src = IdleBitmaps(src)
		}
		return errOrLost(s, src, nil)
	}
	overlay, err := e.Bitmaps(ctx, instance, s.Overlay)
	if err != nil {
		return e.move.HVError(err)
	}
	forgetful := slices.DeleteFunc(slices.Clone(src), func(b hv.StoredBitmap) bool { return !HasBitmap(overlay, b.Name) })
	if len(forgetful) > 0 && instance != "" {
		return api.Errorf(api.CodeStateForbidden,
			"the source %s of volume %s has %s, made since the move was checked, and so has the overlay: at the destination there would be only what was written since the start, and an incremental backup would be wrong without an error. Cancel the migration (`%s`), which keeps what is in both, and remove the bitmap before the next move",
			s.Src.Path, s.VolumeName, BitmapNames(forgetful), s.CancelCommand())
	}
	if instance != "" && s.Dst.Format == api.FormatQcow2 { // libvirt moves the overlay's bitmaps
		overlay = nil
	}
	return errOrLost(s, append(src, overlay...), nil)
}

// MayLeave is CheckBitmapsKept for a switch to dst. A switch back to src is not checked.
func (e *Env) MayLeave(ctx context.Context, s *move.Spec, to move.Direction, active bool) error {
	if to.End == move.OnSrc {
		return nil
	}
	return e.CheckBitmapsKept(ctx, s, active)
}

// RemarkBitmaps adds a remark about bitmaps that were made in the overlay: a cancel with the
// instance off loses them, since a fold moves no bitmaps to src.
func (e *Env) RemarkBitmaps(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction) error {
	if to.End != move.OnSrc {
		return nil
	}
	made, err := e.Bitmaps(ctx, "", s.Overlay)
	if err != nil {
		return err
	}
	var src []hv.StoredBitmap
	if s.Src.Format == api.FormatQcow2 {
		if src, err = e.Bitmaps(ctx, "", s.Src.Path); err != nil {
			return err
		}
	}
	made = slices.DeleteFunc(made, func(b hv.StoredBitmap) bool { return HasBitmap(src, b.Name) })
	if len(made) == 0 {
		return nil
	}
	return r.SetOutput(move.RemarkOutput{Remark: fmt.Sprintf("the volume does not have %s, made while it was on its overlay: the next backup by it has to be a full one", BitmapNames(made))})
}

// CheckBitmapsKeptNow is CheckBitmapsKept with the present state of the instance, if any.
func (e *Env) CheckBitmapsKeptNow(ctx context.Context, s *move.Spec) error {
	if !s.Attached() {
		return e.CheckBitmapsKept(ctx, s, false)
	}
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil {
		return err
	}
	return e.CheckBitmapsKept(ctx, s, disk.Active)
}

func errOrLost(s *move.Spec, lost []hv.StoredBitmap, err error) error {
	if err != nil || len(lost) == 0 || s.Checkpoints == api.CheckpointsDrop {
		return err
	}
	return api.Errorf(api.CodeStateForbidden,
		"%s has %s, made since the move of volume %s was checked, and the destination would not have it: cancel the migration (`%s`), or remove it (`%s`, each one) if the next backup may be a full one, and call again",
		lost[0].Path, BitmapNames(lost), s.VolumeName, s.CancelCommand(), RemoveBitmap(s.InstanceName, lost[0]))
}

// CheckNoBitmapAppeared refuses the switch to the overlay if src has a dirty bitmap that was made
// since preflight.
func (e *Env) CheckNoBitmapAppeared(ctx context.Context, s *move.Spec) error {
	if s.Src.Format != api.FormatQcow2 {
		return nil
	}
	all, err := e.Bitmaps(ctx, s.InstanceID, s.Src.Path)
	if err != nil || len(all) == 0 {
		return e.move.HVError(err)
	}
	return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s: disk %s of instance %s, which runs, has %s by now; nothing was changed: try again, which says what can be done",
		s.VolumeName, s.Target, s.InstanceName, BitmapNames(all))
}
