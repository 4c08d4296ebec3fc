// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/volferry/volferry/daemon/internal/openfile"
)

// The image formats for qemu-img.
const (
	FormatRaw   = "raw"
	FormatQCOW2 = "qcow2"
)

// maxPathBytes is PATH_MAX without its terminator.
const maxPathBytes = 4095

// Image is an image of this host: the absolute path of a regular file or block device and its
// stated format. Backing is the stored backing image, or nil: the header must agree, and no other
// image is ever opened.
type Image struct {
	Path    string
	Format  string
	Backing *Image
	// SliceBytes, if not 0: the image is only the first SliceBytes of the larger raw file or
	// device at Path.
	SliceBytes int64
	// LUKS: QEMU encrypts the image. A raw one is a LUKS container with the guest's data as
	// payload; a qcow2 image is encrypted inside. All encrypted images of a call have one
	// passphrase.
	LUKS bool
	// Files defines where this image and those below it may be.
	Files openfile.Files
}

func (i Image) String() string { return i.Path + " (" + i.Format + ")" }

// validate refuses an image that no command line may contain. It does not read the file.
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
	if i.LUKS && i.SliceBytes != 0 {
		return &ImageError{i.Path, "a LUKS container cannot be a slice"}
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

// MaxBacking bounds the backing images of an image; longer chains do not work in QEMU and libvirt.
const MaxBacking = 200

// options returns the image's driver options for qemu-img, with the given prefix ("" or
// "backing."). protocol is the result of protocolOf.
func (i Image) options(prefix, protocol string) string {
	options := fmt.Sprintf("%sdriver=%s,%sfile.driver=%s,%sfile.filename=%s",
		prefix, i.driver(), prefix, protocol, prefix, strings.ReplaceAll(i.Path, ",", ",,"))
	switch {
	case i.LUKS && i.Format == FormatRaw:
		options += fmt.Sprintf(",%skey-secret=%s", prefix, keyID)
	case i.LUKS:
		options += fmt.Sprintf(",%sencrypt.format=%s,%sencrypt.key-secret=%s", prefix, formatLUKS, prefix, keyID)
	}
	if i.SliceBytes != 0 {
		options += fmt.Sprintf(",%soffset=0,%ssize=%d", prefix, prefix, i.SliceBytes)
	}
	return options
}

func (i Image) driver() string {
	if i.LUKS && i.Format == FormatRaw {
		return formatLUKS
	}
	return i.Format
}

const (
	protocolFile   = "file"
	protocolDevice = "host_device"
)
