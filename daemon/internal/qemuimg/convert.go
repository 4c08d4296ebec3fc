// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// ConvertOptions are the options of Convert.
type ConvertOptions struct {
	// DstIsZero says that dst reads as zeros everywhere because the caller has just made
	// it. It is never guessed.
	DstIsZero bool
	// IsDst, if set, checks the open dst before anything is written to it: an error ends
	// the conversion.
	IsDst func(dst *os.File) error
	// Progress is called with how many bytes of the content are done. Optional.
	Progress func(doneBytes, totalBytes int64)
	// Throttle paces the child. Optional.
	Throttle Throttle
}

// Convert copies the content of src into dst, an existing image of the same
// size, and puts it on stable storage. It verifies nothing: see Compare.
func Convert(ctx context.Context, src, dst Image, opts ConvertOptions) error {
	pair, err := openPair(src, dst)
	if err != nil {
		return err
	}
	defer pair.close()
	if opts.IsDst != nil {
		if err := opts.IsDst(pair.dst.file); err != nil {
			return err
		}
	}
	args := convertArgs(pair.src.describe("", 0), pair.src.cacheMode(), pair.describeDst(), pair.dst.cacheMode(), opts.DstIsZero)
	_, err = run(ctx, args, childOptions{
		progress: byteProgress(opts.Progress, pair.src.sizeBytes), throttle: opts.Throttle, files: pair.files(),
	})
	if err != nil {
		return err
	}
	return pair.dst.sync()
}

// CompareOptions are the options of Compare.
type CompareOptions struct {
	// Passphrase opens both images, if they are encrypted.
	Passphrase []byte
	// Progress is called with how many bytes of the content are done. Optional.
	Progress func(doneBytes, totalBytes int64)
	// Throttle paces the child. Optional.
	Throttle Throttle
}

// Compare reads both images, past the page cache where that is possible, and
// returns nil if they hold the same bytes, a *MismatchError if not, and a
// *SizeError if their sizes differ.
func Compare(ctx context.Context, src, dst Image, opts CompareOptions) error {
	if err := checkKey(opts.Passphrase, src, dst); err != nil {
		return err
	}
	pair, err := openPair(src, dst)
	if err != nil {
		return err
	}
	defer pair.close()
	args := compareArgs(pair.src.describe("", 0), pair.describeDst(), commonCache(pair.src, pair.dst))
	out, err := run(ctx, args, childOptions{
		progress: byteProgress(opts.Progress, pair.src.sizeBytes), throttle: opts.Throttle, files: pair.files(), passphrase: opts.Passphrase,
	})
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

// pair is two images of equal size, open.
type pair struct{ src, dst *opened }

// openPair opens two images and insists on equal sizes.
func openPair(src, dst Image) (p pair, err error) {
	if p.src, err = open(src, os.O_RDONLY); err != nil {
		return p, err
	}
	if p.dst, err = open(dst, os.O_RDONLY); err != nil {
		p.src.close()
		return p, err
	}
	if p.src.sizeBytes != p.dst.sizeBytes {
		p.close()
		return p, &SizeError{dst.Path, p.dst.sizeBytes, p.src.sizeBytes}
	}
	return p, nil
}

func (p pair) close() {
	p.src.close()
	p.dst.close()
}

// files are what a child gets, src first.
func (p pair) files() []*os.File { return slices.Concat(p.src.files(), p.dst.files()) }

// describeDst is dst for a child that gets these files.
func (p pair) describeDst() string { return p.dst.describe("", len(p.src.files())) }

// byteProgress turns a fraction into bytes.
func byteProgress(report func(done, total int64), total int64) func(float64) {
	if report == nil {
		return nil
	}
	return func(fraction float64) { report(int64(fraction*float64(total)), total) }
}
