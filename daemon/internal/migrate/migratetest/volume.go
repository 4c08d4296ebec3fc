// SPDX-License-Identifier: Apache-2.0

package migratetest

import "github.com/volferry/volferry/daemon/internal/hv/hvtest"

// The volume and the instance of a world.
const (
	Instance      = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0001"
	Volume        = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0002"
	Migration     = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0003"
	SrcAttachment = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0004"
	DstAttachment = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0005"
	Host          = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0006"

	Blocks = 32
	Size   = Blocks * hvtest.BlockSize
	// DeviceBytes is the size of a block device for the volume's qcow2 image.
	DeviceBytes = Size + hvtest.TableBytes
	SrcPath     = "/old/vol.raw"
	DstPath     = "/new/vol-6f0f7f6e.raw"
	OverlayPath = "/overlays/" + Migration + ".qcow2"
)
