// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// ConvertOptions are the options of Convert.
type ConvertOptions struct {
	// DstIsZero says that dst reads as zeros everywhere because the caller has
	// just made it. Never guessed.
	DstIsZero bool
	// Progress is told how many bytes of the content are done. Optional.
	Progress func(doneBytes, totalBytes int64)
	// Throttle paces the child. Optional.
	Throttle Throttle
}

// Convert copies the content of src into dst, an existing image of the same
// size, and puts it on stable storage. It verifies nothing: see Compare.
func Convert(ctx context.Context, src, dst Image, opts ConvertOptions) error {
	srcOpts, dstOpts, sizeBytes, err := describePair(src, dst)
	if err != nil {
		return err
	}
	args := convertArgs(srcOpts, cacheMode(src.Path), dstOpts, cacheMode(dst.Path), opts.DstIsZero)
	_, err = run(ctx, args, childOptions{progress: byteProgress(opts.Progress, sizeBytes), throttle: opts.Throttle})
	if err != nil {
		return err
	}
	return Sync(dst.Path)
}

// CompareOptions are the options of Compare.
type CompareOptions struct {
	// Progress is told how many bytes of the content are done. Optional.
	Progress func(doneBytes, totalBytes int64)
	// Throttle paces the child. Optional.
	Throttle Throttle
}

// Compare reads both images, past the page cache where that is possible, and
// returns nil if they hold the same bytes, a *MismatchError if not, and a
// *SizeError if their sizes differ.
func Compare(ctx context.Context, src, dst Image, opts CompareOptions) error {
	srcOpts, dstOpts, sizeBytes, err := describePair(src, dst)
	if err != nil {
		return err
	}
	args := compareArgs(srcOpts, dstOpts, commonCache(src.Path, dst.Path))
	out, err := run(ctx, args, childOptions{progress: byteProgress(opts.Progress, sizeBytes), throttle: opts.Throttle})
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		offset, parseErr := mismatchOffset(out)
		if parseErr != nil {
			return errors.Join(err, parseErr)
		}
		return &MismatchError{src.Path, dst.Path, offset}
	}
	return err
}

// mismatchOffset finds the offset in the one sentence that qemu-img has for it.
func mismatchOffset(out string) (int64, error) {
	const before = "Content mismatch at offset "
	_, rest, found := strings.Cut(out, before)
	number, _, closed := strings.Cut(rest, "!")
	if !found || !closed {
		return 0, fmt.Errorf("no offset in the answer of qemu-img compare (%q)", out)
	}
	return strconv.ParseInt(number, 10, 64)
}

// describePair describes two images for qemu-img and insists on equal sizes.
func describePair(src, dst Image) (srcOpts, dstOpts string, sizeBytes int64, err error) {
	srcOpts, srcBytes, err := describe(src)
	if err != nil {
		return "", "", 0, err
	}
	dstOpts, dstBytes, err := describe(dst)
	if err != nil {
		return "", "", 0, err
	}
	if srcBytes != dstBytes {
		return "", "", 0, &SizeError{dst.Path, dstBytes, srcBytes}
	}
	return srcOpts, dstOpts, srcBytes, nil
}

// byteProgress turns a fraction into bytes.
func byteProgress(report func(done, total int64), total int64) func(float64) {
	if report == nil {
		return nil
	}
	return func(fraction float64) { report(int64(fraction*float64(total)), total) }
}
