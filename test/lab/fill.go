// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/volferry/volferry/test/lab/workload"
)

// MakeVolume makes an image file of this size, a sparse one, and fills it.
func MakeVolume(ctx context.Context, v Volume, sizeBytes int64, fill Fill) error {
	raw := v.Path
	if v.Format != "raw" {
		raw += ".fill"
		defer func() { _ = os.Remove(raw) }()
	}
	if err := os.WriteFile(raw, nil, 0o644); err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	if err := os.Truncate(raw, sizeBytes); err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	if err := FillVolume(raw, fill); err != nil {
		return err
	}
	if raw == v.Path {
		return nil
	}
	_, err := run(ctx, "qemu-img", "convert", "-f", "raw", "-O", v.Format, raw, v.Path)
	return err
}

// volumeBlocks is the size of a volume as a guest sees it, which may have it.
func volumeBlocks(ctx context.Context, v Volume) (uint64, error) {
	if v.SliceBytes != 0 {
		return uint64(v.SliceBytes) / workload.BlockSize, nil
	}
	args := []string{"info", "--force-share", "--output=json"}
	if v.LUKS != nil {
		args = append(args, append(v.LUKS.object(), "--image-opts", v.LUKS.options(v.Path))...)
	} else {
		args = append(args, "-f", v.Format, v.Path)
	}
	out, err := run(ctx, "qemu-img", args...)
	if err != nil {
		return 0, err
	}
	var info struct {
		VirtualSize uint64 `json:"virtual-size"`
	}
	if err := json.Unmarshal([]byte(out), &info); err != nil {
		return 0, fmt.Errorf("parse qemu-img info: %w", err)
	}
	return info.VirtualSize / workload.BlockSize, nil
}

// FillVolume writes a record into the given percentage of the blocks of a raw
// image or block device, which reads as zero otherwise, so that a check sees a
// block that nobody wrote to and that did not come along.
func FillVolume(path string, fill Fill) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("fill volume: %w", err)
	}
	size, err := f.Seek(0, 2)
	if err == nil {
		err = fillBlocks(f, fill, uint64(size)/workload.BlockSize)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("fill volume: %w", err)
	}
	return nil
}

func fillBlocks(f *os.File, fill Fill, blocks uint64) error {
	buf := make([]byte, workload.BlockSize)
	for b := range blocks {
		if !workload.Filled(fill.Seed, b, fill.Percent) {
			continue
		}
		workload.PutRecord(buf, fill.Seed, workload.FillSeq, b)
		if _, err := f.WriteAt(buf, int64(b*workload.BlockSize)); err != nil {
			return err
		}
	}
	return nil
}
