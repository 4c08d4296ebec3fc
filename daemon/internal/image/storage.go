// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/daemon/internal/sandbox"
)

// SizeError reports that an image does not have the expected size.
type SizeError = qemuimg.SizeError

// Storage works on images: files and devices of this host, and images at addresses. Its methods may
// be called from any goroutine.
type Storage struct {
	// Privileged makes the calls that need CAP_SYS_ADMIN.
	Privileged sandbox.Privileged
	// Access checks the access of QEMU's user.
	Access sandbox.Access
	// Network opens images at addresses.
	Network network.Access
	// Secret returns the value of a libvirt secret, by its UUID.
	Secret func(ctx context.Context, id string) ([]byte, error)
	// Files opens images that are files or devices.
	Files openfile.Files
}

// Beside lists the other files in the directory of path with names that differ from path only in
// the extension.
func (Storage) Beside(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("look what is beside %s: %w", path, err)
	}
	var beside []string
	for _, e := range entries {
		other := filepath.Join(filepath.Dir(path), e.Name())
		if other != path && strings.TrimSuffix(other, filepath.Ext(other)) == strings.TrimSuffix(path, filepath.Ext(path)) {
			beside = append(beside, other)
		}
	}
	return beside, nil
}

// AllocatedBytes returns how much space a file takes.
func (Storage) AllocatedBytes(path string) (int64, error) { return qemuimg.AllocatedBytes(path) }

// Properties are properties of a qcow2 image that a guest does not see.
type Properties = qemuimg.Properties

// Properties reads the properties of the image at path.
func (Storage) Properties(path string) (Properties, error) { return qemuimg.ReadProperties(path) }

// MayWrite refuses an image in a directory where this program cannot write.
func (Storage) MayWrite(path string) error { return location.CheckWritable(path) }

// FreeBytes returns how much a file in dir may still grow.
func (Storage) FreeBytes(dir string) (int64, error) { return location.DirFreeBytes(dir) }

// InMemory reports whether a reboot deletes the files in dir.
func (Storage) InMemory(dir string) (bool, error) { return location.InMemory(dir) }
