// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/openfile"
)

// opened is an image that this process has open. A child reads or writes the very file that was
// checked: see childFile.
type opened struct {
	Image
	file      *os.File
	protocol  string
	sizeBytes int64
	below     *opened
}

func openAny(i Image, flags int) (*opened, error) {
	f, err := i.Files.Open(i.Path, flags)
	if bad := (*openfile.Error)(nil); errors.As(err, &bad) {
		return nil, &ImageError{bad.Path, bad.Reason}
	}
	if err != nil {
		return nil, err
	}
	o := &opened{Image: i, file: f}
	st, err := f.Stat()
	if err == nil {
		o.protocol, err = protocolOf(i.Path, st)
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *opened) close() {
	for ; o != nil; o = o.below {
		_ = o.file.Close()
	}
}

func (o *opened) files() (files []*os.File) {
	for ; o != nil; o = o.below {
		files = append(files, o.file)
	}
	return files
}

func protocolOf(path string, st os.FileInfo) (string, error) {
	switch {
	case st.Mode().IsRegular():
		return protocolFile, nil
	case st.Mode()&os.ModeDevice != 0 && st.Mode()&os.ModeCharDevice == 0:
		return protocolDevice, nil
	}
	return "", &ImageError{path, "neither a regular file nor a block device"}
}

func (o *opened) isFile() error {
	if o.protocol != protocolFile {
		return &ImageError{o.Path, "is not a regular file"}
	}
	return nil
}

func (o *opened) heldBytes() (int64, error) {
	// Seeking to the end also gives the size of a block device.
	n, err := o.file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("read size: %w", err)
	}
	return n, nil
}

func (o *opened) readSize() error {
	if o.Format == FormatQCOW2 {
		h, err := o.header()
		if err != nil {
			return err
		}
		o.sizeBytes = h.SizeBytes
		return h.whole(o.Path)
	}
	n, err := o.heldBytes()
	if err != nil {
		return err
	}
	if o.SliceBytes > n {
		return &SizeError{o.Path, n, o.SliceBytes}
	}
	if o.LUKS {
		offset, err := payloadOffset(o.file, n)
		if err != nil {
			return &ImageError{o.Path, err.Error()}
		}
		o.sizeBytes = n - offset
		return nil
	}
	o.sizeBytes = cmp.Or(o.SliceBytes, n)
	return nil
}

func (o *opened) header() (*Header, error) {
	h, err := parseHeader(o.file)
	switch {
	case err != nil:
		return nil, &ImageError{o.Path, err.Error()}
	case h.Encrypted && !o.LUKS:
		return nil, &ImageError{o.Path, "the image is encrypted"}
	case !h.Encrypted && o.LUKS:
		return nil, &ImageError{o.Path, "the image is not encrypted"}
	}
	return h, nil
}

const cacheNone = "none"

// cacheMode returns QEMU's cache mode: none if the filesystem supports O_DIRECT, else writeback;
// the caller's fsync makes the data durable.
func (o *opened) cacheMode() string {
	f, err := openfile.Again(o.file, os.O_RDONLY|unix.O_DIRECT)
	if err != nil {
		return "writeback"
	}
	_ = f.Close()
	return cacheNone
}

func commonCache(a, b *opened) string {
	if a.cacheMode() == b.cacheMode() {
		return a.cacheMode()
	}
	return "writeback"
}

// describe returns driver options of the image and the images below it, with the given prefix (""
// or "backing."), for a child that gets their files from index number on. QEMU then opens these
// images and no other image that a header names.
func (o *opened) describe(prefix string, number int) string {
	text := Image{Path: childFile(number), Format: o.Format, SliceBytes: o.SliceBytes, LUKS: o.LUKS}.options(prefix, o.protocol)
	if o.below != nil {
		text += "," + o.below.describe(prefix+"backing.", number+1)
	}
	return text
}

func (o *opened) sync() error {
	if err := o.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", o.Path, err)
	}
	return nil
}
