// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The formats of images that qemu-img gets.
const (
	FormatRaw   = "raw"
	FormatQCOW2 = "qcow2"
)

// maxPathBytes is PATH_MAX with its terminator.
const maxPathBytes = 4095

// Image is an image of this host: the absolute path of a regular file or block device and
// its stated format. Backing is the image below it, as it was stored, nil if it stands
// alone: the header has to say the same, and no other image is ever opened.
type Image struct {
	Path    string
	Format  string
	Backing *Image
	// SliceBytes, if not 0, says that the image is only the first SliceBytes of the larger
	// file or device at Path; raw only.
	SliceBytes int64
}

func (i Image) String() string { return i.Path + " (" + i.Format + ")" }

// validate refuses what no command line may contain. It does not look at the
// file.
func (i Image) validate() error {
	layers := 0
	for b := i.Backing; b != nil; b = b.Backing {
		if layers++; layers > MaxBacking {
			return &ImageError{i.Path, "its chain does not end"}
		}
		if err := (Image{Path: b.Path, Format: b.Format}).validate(); err != nil {
			return err
		}
	}
	switch i.Format {
	case FormatRaw:
	case FormatQCOW2:
		if i.SliceBytes != 0 {
			return &ImageError{i.Path, "only a raw image can be a slice"}
		}
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

// MaxBacking is how many backing images an image may have; longer chains do not work in
// QEMU and libvirt.
const MaxBacking = 200

// options describes the image to qemu-img as the options of its drivers, below
// the given prefix ("" or "backing."). protocol is that of protocolOf.
func (i Image) options(prefix, protocol string) string {
	options := fmt.Sprintf("%sdriver=%s,%sfile.driver=%s,%sfile.filename=%s",
		prefix, i.Format, prefix, protocol, prefix, strings.ReplaceAll(i.Path, ",", ",,"))
	if i.SliceBytes != 0 {
		options += fmt.Sprintf(",%soffset=0,%ssize=%d", prefix, prefix, i.SliceBytes)
	}
	return options
}

// The protocol drivers for a regular file and for a block device.
const (
	protocolFile   = "file"
	protocolDevice = "host_device"
)
