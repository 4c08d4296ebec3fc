// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

func (h host) inUse(_ context.Context, path string, _ rbd.Count) (string, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if st.Mode().Type() != os.ModeDevice {
		return loopDeviceOf(path)
	}
	f, err := h.Open(path, os.O_RDONLY|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return "it is mounted, or part of another device", nil
	}
	if err != nil {
		return "", cannotOpen(path, err)
	}
	return "", f.Close()
}

func loopDeviceOf(path string) (string, error) {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", err
	}
	place := location.PlaceOf(path)
	for _, f := range backing {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // detached since
		}
		same, err := place.Is(string(text[:max(0, len(text)-1)]))
		if err != nil {
			return "", fmt.Errorf("look at the file of %s: %w", loopDevice(f), err)
		}
		if same {
			return "it is the file of " + loopDevice(f), nil
		}
	}
	return "", nil
}

func loopDevice(backingFile string) string {
	return filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(backingFile))))
}
