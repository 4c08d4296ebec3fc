// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// FullBytes returns the size of a new image with createOptions when all of its sizeBytes are
// written.
func FullBytes(ctx context.Context, sizeBytes int64) (int64, error) {
	return fullBytes(ctx, createOptions, sizeBytes)
}

// Room has the size that a qcow2 image can reach and its device's size.
type Room struct {
	// FullBytes is the size of the fully written image, without gaps and bitmaps.
	FullBytes, DeviceBytes int64
}

// RoomOf returns the Room of a qcow2 image on a block device, computed from the image's layout.
func RoomOf(ctx context.Context, i Image) (Room, error) {
	o, err := openAny(i, os.O_RDONLY)
	if err != nil {
		return Room{}, err
	}
	defer o.close()
	h, err := o.header()
	if err != nil {
		return Room{}, err
	}
	var room Room
	if room.DeviceBytes, err = o.heldBytes(); err != nil {
		return Room{}, err
	}
	room.FullBytes, err = fullBytes(ctx, h.layout(), h.SizeBytes)
	return room, err
}

func (h *Header) layout() string {
	if h.Version == 2 {
		return fmt.Sprintf("compat=0.10,cluster_size=%d", h.clusterBytes)
	}
	options := fmt.Sprintf("compat=1.1,cluster_size=%d,refcount_bits=%d", h.clusterBytes, h.refcountBits)
	if h.ExtendedL2 {
		options += ",extended_l2=on"
	}
	return options
}

func fullBytes(ctx context.Context, options string, sizeBytes int64) (int64, error) {
	out, err := run(ctx, measureArgs(options, sizeBytes), childOptions{})
	if err != nil {
		return 0, err
	}
	var measured struct {
		FullBytes int64 `json:"fully-allocated"`
	}
	if err := json.Unmarshal([]byte(out), &measured); err != nil {
		return 0, fmt.Errorf("read what qemu-img measure says: %w", err)
	}
	if measured.FullBytes < sizeBytes {
		return 0, fmt.Errorf("qemu-img measure says that an image of %d bytes takes %d", sizeBytes, measured.FullBytes)
	}
	return measured.FullBytes, nil
}
