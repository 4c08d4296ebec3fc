// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/qmp"
)

type bitmapArgs struct {
	Node        string `json:"node"`
	Name        string `json:"name"`
	Granularity int64  `json:"granularity,omitempty"`
}

const (
	addBitmap     = "block-dirty-bitmap-add"
	disableBitmap = "block-dirty-bitmap-disable"
	removeBitmap  = "block-dirty-bitmap-remove"
)

func (t *tracker) StartTracking(ctx context.Context, id, target, name string, unitBytes int64) error {
	const what = "track writes of"
	disk, err := t.tracked(ctx, what, id, target)
	if err != nil {
		return err
	}
	if err := disk.lacks(name); err != nil {
		return fmt.Errorf("%s %s: %w", what, nameOf(id, target), err)
	}
	return t.calls.monitor(ctx, what, id, target, qmp.Command{Execute: addBitmap, Arguments: bitmapArgs{disk.node, name, unitBytes}}, nil)
}

type action struct {
	Type string     `json:"type"`
	Data bitmapArgs `json:"data"`
}

// SwapTracking implements hv.DirtyTracker. QEMU makes the actions of a transaction in order.
func (t *tracker) SwapTracking(ctx context.Context, id, target, oldName, newName string, unitBytes int64) error {
	const what = "track writes anew of"
	disk, err := t.tracked(ctx, what, id, target)
	if err != nil {
		return err
	}
	err = disk.has(oldName)
	if err == nil {
		err = disk.lacks(newName)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, nameOf(id, target), err)
	}
	return t.calls.monitor(ctx, what, id, target, qmp.Command{Execute: "transaction", Arguments: map[string][]action{"actions": {
		{addBitmap, bitmapArgs{disk.node, newName, unitBytes}},
		{disableBitmap, bitmapArgs{Node: disk.node, Name: oldName}},
	}}}, nil)
}

func (t *tracker) Tracking(ctx context.Context, id, target string) ([]hv.DirtyBitmap, error) {
	disk, err := t.tracked(ctx, "list bitmaps of", id, target)
	if err != nil {
		return nil, err
	}
	var all []hv.DirtyBitmap
	for _, b := range disk.bitmaps {
		all = append(all, hv.DirtyBitmap{Name: b.Name, Recording: b.Recording, UnitBytes: b.Granularity, DirtyBytes: b.Count})
	}
	return all, nil
}

func (t *tracker) StopTracking(ctx context.Context, id, target, prefix string) error {
	const what = "stop tracking writes of"
	leave, err := t.reading.enter(ctx, "the bitmaps of domain "+id)
	if err != nil {
		return err
	}
	defer leave()
	disk, err := t.tracked(ctx, what, id, target)
	if err != nil {
		return err
	}
	ours := slices.DeleteFunc(disk.bitmaps, func(b qmp.Bitmap) bool { return !strings.HasPrefix(b.Name, prefix) })
	if len(ours) == 0 {
		return nil
	}
	// QEMU does not remove an exported bitmap. Exports of other programs do not matter here.
	if err := t.endExports(ctx, what, id, target); err != nil && !errors.Is(err, hv.ErrBusy) {
		return err
	}
	for _, b := range ours {
		if err := t.calls.monitor(ctx, what, id, target, qmp.Command{Execute: removeBitmap, Arguments: bitmapArgs{Node: disk.node, Name: b.Name}}, nil); err != nil {
			return err
		}
	}
	return nil
}
