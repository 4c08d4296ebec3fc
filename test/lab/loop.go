// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func attachLoop(file string) (string, error) {
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = backing.Close() }()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = control.Close() }()
	config := unix.LoopConfig{Fd: uint32(backing.Fd()), Size: 512}
	config.Info.Flags = unix.LO_FLAGS_DIRECT_IO
	copy(config.Info.File_name[:len(config.Info.File_name)-1], file)
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find free loop device: %w", err)
		}
		path := fmt.Sprintf("/dev/loop%d", n)
		device, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err = errors.Join(err, device.Close()); err == nil {
			return path, nil
		}
		if !errors.Is(err, unix.EBUSY) { // else another took it since
			return "", fmt.Errorf("configure %s: %w", path, err)
		}
	}
}

// loopDevices maps each loop device in use to its backing file.
func loopDevices() (map[string]string, error) {
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	loops := make(map[string]string)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // detached since
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(path)))
		file := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), " (deleted)")
		loops["/dev/"+name] = file
	}
	return loops, nil
}

// detachLoopsUnder detaches the loop devices whose backing file is at or below
// path.
func detachLoopsUnder(path string) error {
	loops, err := loopDevices()
	if err != nil {
		return err
	}
	var errs []error
	for device, file := range loops {
		if within(path, file) {
			errs = append(errs, detachLoop(device))
		}
	}
	return errors.Join(errs...)
}

func detachLoop(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return fmt.Errorf("detach loop device: %w", err)
	}
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		err = nil // detached since
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("detach %s: %w", device, err)
	}
	return nil
}
