// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
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
// the given prefix ("" or "backing."). protocol is that of protocolOf.
func (i Image) options(prefix, protocol string) string {
	return fmt.Sprintf("%sdriver=%s,%sfile.driver=%s,%sfile.filename=%s",
		prefix, i.Format, prefix, protocol, prefix, strings.ReplaceAll(i.Path, ",", ",,"))
}

// The protocol drivers for a regular file and for a block device.
const (
	protocolFile   = "file"
	protocolDevice = "host_device"
)
