// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// opened is an image that this process has open. What is checked of it is what a child
// reads or writes, whatever is at its path by then: see childFile.
type opened struct {
	Image
	file      *os.File
	protocol  string
	sizeBytes int64 // what a guest sees
}

// open opens an image that exists and reads its header where it has one.
// A qcow2 image must stand alone: no backing file, no internal snapshots. flags are those of
// open(2): how, and whether a link is followed.
func open(i Image, flags int) (*opened, error) {
	if err := i.validate(); err != nil {
		return nil, err
	}
	o, err := openAny(i, flags)
	if err != nil {
		return nil, err
	}
	if o.sizeBytes, err = o.virtualSize(); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// openOverlay opens an overlay over anything, itself and not a link.
func openOverlay(path string, sizeBytes int64) (*opened, *Header, error) {
	o, err := openAny(Image{path, FormatQCOW2}, os.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, nil, err
	}
	h, err := o.overlayHeader(sizeBytes)
	if err != nil {
		o.close()
		return nil, nil, err
	}
	return o, h, nil
}

// openAny opens a regular file or block device. It looks before, since to open a fifo is to
// wait for a writer, and at what it has open.
func openAny(i Image, flags int) (*opened, error) {
	look := os.Stat
	if flags&unix.O_NOFOLLOW != 0 {
		look = os.Lstat
	}
	st, err := look(i.Path)
	if err != nil {
		return nil, err
	}
	if _, err := protocolOf(i.Path, st); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(i.Path, flags, 0)
	if err != nil {
		return nil, err
	}
	o := &opened{Image: i, file: f}
	if st, err = f.Stat(); err == nil {
		o.protocol, err = protocolOf(i.Path, st)
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *opened) close() { _ = o.file.Close() }

// protocolOf says which driver reaches an image, and refuses everything that is neither a
// regular file nor a block device.
func protocolOf(path string, st os.FileInfo) (string, error) {
	switch {
	case st.Mode().IsRegular():
		return protocolFile, nil
	case st.Mode()&os.ModeDevice != 0 && st.Mode()&os.ModeCharDevice == 0:
		return protocolDevice, nil
	}
	return "", &ImageError{path, "neither a regular file nor a block device"}
}

// isFile refuses a block device.
func (o *opened) isFile() error {
	if o.protocol != protocolFile {
		return &ImageError{o.Path, "is not a regular file"}
	}
	return nil
}

func (o *opened) virtualSize() (int64, error) {
	if o.Format == FormatQCOW2 {
		h, err := o.header()
		if err != nil {
			return 0, err
		}
		return h.SizeBytes, h.standsAlone(o.Path)
	}
	// Seeking to the end gives the size of a block device as well.
	n, err := o.file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("read size: %w", err)
	}
	return n, nil
}

func (o *opened) header() (*Header, error) {
	h, err := parseHeader(o.file)
	if err != nil {
		return nil, &ImageError{o.Path, err.Error()}
	}
	return h, nil
}

// cacheMode is none where the filesystem takes O_DIRECT, else writeback, after which the
// caller's fsync makes it durable.
func (o *opened) cacheMode() string {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", o.file.Fd()), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return "writeback"
	}
	_ = unix.Close(fd)
	return "none"
}

// commonCache is the cache mode that both images can have.
func commonCache(a, b *opened) string {
	if a.cacheMode() == b.cacheMode() {
		return a.cacheMode()
	}
	return "writeback"
}

// as is the image as the child knows it that gets its file as the number-th.
func (o *opened) as(number int) Image { return Image{childFile(number), o.Format} }

// describe is the image for that child as the options of its drivers.
func (o *opened) describe(number int) string { return o.as(number).options("", o.protocol) }

// sync puts the image on stable storage.
func (o *opened) sync() error {
	if err := o.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", o.Path, err)
	}
	return nil
}
