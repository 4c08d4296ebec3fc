// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/location"
)

// Device is a block device of the kernel.
type Device struct {
	SizeBytes int64
	// Identity is the device's own identity; empty if it has none that is stable over reboots.
	Identity string
}

// ErrNoDevice means that there is nothing at a path.
var ErrNoDevice = errors.New("there is no device")

// Look returns the kernel's device at a path.
func Look(path string) (Device, error) {
	st, err := location.Stat(path) // Stat has a time limit
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return Device{}, ErrNoDevice
	case err != nil:
		return Device{}, err
	case st.Mode&unix.S_IFMT != unix.S_IFBLK:
		return Device{}, fmt.Errorf("%s is no block device", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Device{}, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Device{}, fmt.Errorf("read the size of %s: %w", path, err)
	}
	fingerprint, err := location.FingerprintOf(f)
	if err != nil {
		return Device{}, err
	}
	return Device{SizeBytes: size, Identity: location.IdentityIn(fingerprint)}, nil
}

// Check compares a connector's answer about a volume with the kernel. The answer must be about the
// requested volume, at its place in the pool, and have the device's size and identity. Without a
// device Check returns ErrNoDevice.
func Check(look func(path string) (Device, error), directory, name string, said connector.Volume) (Device, error) {
	switch {
	case said.Name != name:
		return Device{}, fmt.Errorf("it answers about a volume %.140q, and was asked about %s", said.Name, name)
	case said.Path != directory+"/"+name:
		return Device{}, fmt.Errorf("it says that %s is at %.300q, and the place of that name is %s/%[1]s", name, said.Path, directory)
	case said.SizeBytes <= 0:
		return Device{}, fmt.Errorf("it says that %s has %d bytes", name, said.SizeBytes)
	case said.Identity == "":
		return Device{}, fmt.Errorf("it does not say which device %s is", name)
	}
	found, err := look(said.Path)
	switch {
	case err != nil:
		return found, err
	case found.Identity == "":
		return found, fmt.Errorf("the device at %s says nothing of itself by which it could be told from another one", said.Path)
	case found.Identity != said.Identity:
		return found, fmt.Errorf("it says that %s is the device %.200q, and the kernel has %q at that path", said.Path, said.Identity, found.Identity)
	case found.SizeBytes != said.SizeBytes:
		return found, fmt.Errorf("it says that %s has %d bytes, and the kernel says %d", said.Path, said.SizeBytes, found.SizeBytes)
	}
	return found, nil
}

// CheckPool refuses an impossible description of a pool.
func CheckPool(p connector.Pool) error {
	switch {
	case !cleanBelowDev(p.Directory):
		return fmt.Errorf("it says that the devices are in %.300q, which is no clean path below /dev", p.Directory)
	case p.GranularityBytes <= 0 || p.GranularityBytes%512 != 0:
		return fmt.Errorf("it says that sizes are multiples of %d, which has to be a multiple of 512", p.GranularityBytes)
	case p.CapacityBytes < 0 || p.FreeBytes < 0 || p.FreeBytes > p.CapacityBytes:
		return fmt.Errorf("it says that %d of %d bytes are free", p.FreeBytes, p.CapacityBytes)
	}
	return checkVerbs(p)
}

func checkVerbs(p connector.Pool) error {
	pairs := 0
	for _, pair := range [][2]string{{connector.VerbCreate, connector.VerbDelete}, {connector.VerbConnect, connector.VerbDisconnect}} {
		switch {
		case p.Can(pair[0]) && p.Can(pair[1]):
			pairs++
		case p.Can(pair[0]):
			return fmt.Errorf("it has the verb %s, and does not have the verb %s", pair[0], pair[1])
		case p.Can(pair[1]):
			return fmt.Errorf("it has the verb %s, and does not have the verb %s", pair[1], pair[0])
		}
	}
	switch {
	case !p.Can(connector.VerbInspect):
		return fmt.Errorf("it does not have the verb %s", connector.VerbInspect)
	case pairs == 0:
		return fmt.Errorf("it neither makes volumes (%s, %s) nor connects them (%s, %s)", connector.VerbCreate, connector.VerbDelete, connector.VerbConnect, connector.VerbDisconnect)
	}
	return nil
}

func cleanBelowDev(path string) bool {
	return strings.HasPrefix(path, "/dev/") && filepath.Clean(path) == path
}
