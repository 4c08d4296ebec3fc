// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"errors"
	"fmt"
	"strings"
)

// ErrBusy means that a block device is mounted, or part of another device.
var ErrBusy = errors.New("it is mounted, or part of another device")

// ImageError reports that an image may not be passed to qemu-img, or is not as the caller
// described it.
type ImageError struct {
	Path   string
	Reason string
}

func (e *ImageError) Error() string { return fmt.Sprintf("image %s: %s", e.Path, e.Reason) }

// SizeError reports that the image at Path has Bytes bytes instead of WantBytes.
type SizeError struct {
	Path      string
	Bytes     int64
	WantBytes int64
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%s has %d bytes, needs exactly %d", e.Path, e.Bytes, e.WantBytes)
}

// MismatchError reports the first difference of two images of equal size. Offset is exact to the
// byte for two raw images, and to the sector (512 bytes) otherwise.
type MismatchError struct {
	Src    string
	Dst    string
	Offset int64
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s differs from %s at byte %d", e.Dst, e.Src, e.Offset)
}

// CommandError reports that qemu-img ran and failed. Err is how the process ended; Stderr is the
// end of its output.
type CommandError struct {
	Verb   string
	Stderr string
	Err    error
}

func (e *CommandError) Error() string {
	if s := strings.TrimSpace(e.Stderr); s != "" {
		return fmt.Sprintf("qemu-img %s: %s (%v)", e.Verb, s, e.Err)
	}
	return fmt.Sprintf("qemu-img %s: %v", e.Verb, e.Err)
}

func (e *CommandError) Unwrap() error { return e.Err }
