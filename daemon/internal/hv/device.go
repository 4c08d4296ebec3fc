// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// Devices connects the devices of volumes, and has storage copy between devices.
type Devices interface {
	// Connectable reports whether the volume at path has a device on this host only while it is
	// connected: a connector's pool has such volumes at paths like this one.
	Connectable(ctx context.Context, path string) (bool, error)
	// ConnectDevice connects the device of the volume at a Connectable path, and does nothing at
	// any other path. It may be repeated. It returns ErrNotFound if no target has the volume.
	ConnectDevice(ctx context.Context, path string) error
	// DisconnectDevice undoes ConnectDevice, but keeps the connections that other volumes use. It
	// may be repeated. It returns ErrInUse if a process has the device open.
	DisconnectDevice(ctx context.Context, path string) error
	// FindDeviceCopy finds the storage that has both devices, and describes a copy by it. It
	// returns ErrNotFound if no known storage has both.
	FindDeviceCopy(ctx context.Context, src, dst string) (*DeviceCopy, error)
	// CopyDevice has the storage copy n bytes at offset off. dst then equals src from off to
	// until, which is at least off + 1. A flush of dst makes the range durable. ErrUnsupported:
	// the storage cannot copy between these two. ErrNoAnswer and ErrUnavailable: the storage may
	// still work on the range, until a later call for dst has another result; DeleteVolume,
	// ConnectDevice and DisconnectDevice of dst wait for the storage. The deadline of ctx is the
	// only time limit.
	CopyDevice(ctx context.Context, c DeviceCopy, off, n int64) (until int64, err error)
}
