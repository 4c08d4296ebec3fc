// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// The formats of images that are ever handed to qemu-img.
const (
	FormatRaw   = "raw"
	FormatQCOW2 = "qcow2"
)

// maxPathBytes is PATH_MAX with its terminator.
const maxPathBytes = 4095

// Image is an image of this host: the absolute path of a regular file or block
// device and its stated format.
type Image struct {
	Path   string
	Format string
}

func (i Image) String() string { return i.Path + " (" + i.Format + ")" }

// validate refuses what no command line may contain. It does not look at the
// file.
func (i Image) validate() error {
	switch i.Format {
	case FormatRaw, FormatQCOW2:
	default:
		return &ImageError{i.Path, fmt.Sprintf("format %q is neither raw nor qcow2", i.Format)}
	}
	return validatePath(i.Path)
}

func validatePath(path string) error {
	switch {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		return &ImageError{fmt.Sprintf("%q", path), "the path is not absolute and clean"}
	case len(path) > maxPathBytes:
		return &ImageError{path[:64] + "...", "the path is too long"}
	case !utf8.ValidString(path):
		return &ImageError{fmt.Sprintf("%q", path), "the path is not valid UTF-8"}
	case strings.ContainsFunc(path, unicode.IsControl):
		return &ImageError{fmt.Sprintf("%q", path), "the path has control characters"}
	}
	return nil
}

// options describes the image to qemu-img as the options of its drivers, below
// the given prefix ("" or "backing."). protocol is that of probeProtocol.
func (i Image) options(prefix, protocol string) string {
	return fmt.Sprintf("%sdriver=%s,%sfile.driver=%s,%sfile.filename=%s",
		prefix, i.Format, prefix, protocol, prefix, strings.ReplaceAll(i.Path, ",", ",,"))
}

// The protocol drivers for a regular file and for a block device.
const (
	protocolFile   = "file"
	protocolDevice = "host_device"
)

// probeProtocol says which driver reaches the image, and refuses everything
// that is neither a regular file nor a block device.
func probeProtocol(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	switch {
	case st.Mode().IsRegular():
		return protocolFile, nil
	case st.Mode()&os.ModeDevice != 0 && st.Mode()&os.ModeCharDevice == 0:
		return protocolDevice, nil
	default:
		return "", &ImageError{path, "neither a regular file nor a block device"}
	}
}

// describe validates an image that exists, reads its header where it has one,
// and returns its size and its description for qemu-img. A qcow2 image must
// stand alone: no backing file, no internal snapshots.
func describe(i Image) (opts string, sizeBytes int64, err error) {
	if err := i.validate(); err != nil {
		return "", 0, err
	}
	protocol, err := probeProtocol(i.Path)
	if err != nil {
		return "", 0, err
	}
	if sizeBytes, err = virtualSize(i); err != nil {
		return "", 0, err
	}
	return i.options("", protocol), sizeBytes, nil
}

// virtualSize reads the size of a validated image.
func virtualSize(i Image) (int64, error) {
	if i.Format == FormatQCOW2 {
		h, err := ReadHeader(i.Path)
		if err != nil {
			return 0, err
		}
		if err := h.standsAlone(i.Path); err != nil {
			return 0, err
		}
		return h.SizeBytes, nil
	}
	f, err := os.Open(i.Path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	// Seeking to the end gives the size of a block device as well.
	n, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("read size: %w", err)
	}
	return n, nil
}

// cacheMode is the cache mode for a path: none where the filesystem takes
// O_DIRECT, else writeback, after which the caller's fsync makes it durable.
func cacheMode(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return "writeback"
	}
	_ = unix.Close(fd)
	return "none"
}

// commonCache is the cache mode that both paths can have.
func commonCache(a, b string) string {
	if cacheMode(a) == cacheMode(b) {
		return cacheMode(a)
	}
	return "writeback"
}
