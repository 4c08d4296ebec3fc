// SPDX-License-Identifier: Apache-2.0

package target

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/connector"
)

// SectorBytes is the unit of sizes in sysfs.
const SectorBytes = 512

// Devices are the block devices of this host, by their names in /sys/class/block.
type Devices struct {
	// Sys, Dev and Udev are the directories of sysfs, of device nodes, and of udev's data.
	Sys, Dev, Udev string
	// Opener returns a process that has one of the devices open, 0 for none.
	Opener func(devices []string) (pid int, err error)
	// Within bounds how long a device and its name in /dev may take to appear after its target is
	// connected, and to disappear, even on a busy host.
	Within time.Duration
}

// Host returns the devices of this host. opener finds the processes that have them open.
func Host(opener func(devices []string) (pid int, err error)) Devices {
	return Devices{Sys: "/sys", Dev: "/dev", Udev: "/run/udev", Opener: opener, Within: time.Minute}
}

// ByID returns the directory of the names that identify devices.
func (d Devices) ByID() string { return filepath.Join(d.Dev, "disk/by-id") }

// Path returns the path of a device.
func (d Devices) Path(device string) string { return filepath.Join(d.Dev, device) }

func (d Devices) dir(device string) string { return filepath.Join(d.Sys, "class/block", device) }

// Attribute reads a sysfs attribute of a device; "" if the device is gone.
func (d Devices) Attribute(device, name string) (string, error) {
	return Attribute(d.dir(device), name)
}

// Attribute reads a sysfs attribute; "" if it is gone.
func Attribute(dir, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// SizeBytes returns the size of a device, 0 if it is gone.
func (d Devices) SizeBytes(device string) (int64, error) {
	text, err := d.Attribute(device, "size")
	if err != nil || text == "" {
		return 0, err
	}
	sectors, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, connector.Errorf(connector.CodeFailed, "the kernel says that %s has %.40q sectors", device, text)
	}
	return sectors * SectorBytes, nil
}

// Holders returns the devices that the kernel has stacked on a device.
func (d Devices) Holders(device string) ([]string, error) { return d.list(device, "holders") }

// Slaves returns the devices beneath a stacked device.
func (d Devices) Slaves(device string) ([]string, error) { return d.list(device, "slaves") }

func (d Devices) list(device, what string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(d.dir(device), what))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// IsKnown reports whether udev has processed a device. Before that udev cannot identify it.
func (d Devices) IsKnown(device string) (bool, error) {
	number, err := d.Attribute(device, "dev")
	if err != nil || number == "" {
		return false, err
	}
	_, err = os.Stat(filepath.Join(d.Udev, "data", "b"+number))
	return err == nil, absentIsFine(err)
}

// IsNamed reports whether a name in ByID leads to this device.
func (d Devices) IsNamed(name, device string) bool {
	to, err := filepath.EvalSymlinks(filepath.Join(d.ByID(), name))
	return err == nil && to == d.Path(device)
}

// HasName reports whether a device has, or had a moment ago, the name in ByID.
func (d Devices) HasName(name string) bool {
	_, err := os.Lstat(filepath.Join(d.ByID(), name))
	return err == nil
}

// NotUsed refuses devices that a process, the kernel or a device outside of the list uses. It
// waits for udev, which opens devices after others have closed them.
func (d Devices) NotUsed(ctx context.Context, devices ...string) error {
	var used error
	begin := time.Now()
	_, err := Until(ctx, d.Within, func() (bool, error) {
		used = d.use(devices)
		if code := connector.CodeOf(used); code != "" && code != connector.CodeInUse {
			return false, used
		}
		return used == nil || time.Since(begin) > d.Within/30 && !d.udevIsBusy(), nil
	})
	if err != nil {
		return err
	}
	return used
}

func (d Devices) udevIsBusy() bool {
	_, err := os.Lstat(filepath.Join(d.Udev, "queue"))
	return err == nil
}

func (d Devices) use(devices []string) error {
	for _, device := range devices {
		path := d.Path(device)
		pid, err := d.Opener([]string{path})
		if err != nil {
			return connector.Errorf(connector.CodeUnavailable, "nobody can tell whether %s is open: %v", path, err)
		}
		if pid != 0 {
			return connector.Errorf(connector.CodeInUse, "%s is open: process %d has it", path, pid)
		}
		holders, err := d.Holders(device)
		if err != nil {
			return err
		}
		for _, h := range holders {
			if !slices.Contains(devices, h) {
				return connector.Errorf(connector.CodeInUse, "%s is in use: device %s is on it", path, h)
			}
		}
		if len(holders) == 0 && isClaimed(path) {
			return connector.Errorf(connector.CodeInUse, "%s is in use: it, or a part of it, is mounted", path)
		}
	}
	return nil
}

// isClaimed reports whether the kernel itself uses a device, for example for a mount.
func isClaimed(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return errors.Is(err, unix.EBUSY)
}
