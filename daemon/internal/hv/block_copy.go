// SPDX-License-Identifier: Apache-2.0

package hv

// BlockCopyOptions are the options of BlockCopy.
type BlockCopyOptions struct {
	// Shallow copies the top layer only. The caller must just have seen a backing image in the
	// live chain: without one QEMU silently makes a full copy and zeroes the target first.
	Shallow bool
	// Backing are the images that stay below the target, top first, with the content of the layers
	// below the top of the disk. libvirt opens them in the pivot, so the job must not be
	// Synchronous, and its granularity must be the target's cluster size.
	Backing []Image
	// Synchronous mirrors every guest write before the write completes: the job converges under
	// any load.
	Synchronous bool
	// BandwidthBytesPerSecond caps the job; 0 means no cap.
	BandwidthBytesPerSecond int64
	// GranularityBytes is the granularity of the dirty bitmap, a power of two; 0 lets QEMU choose.
	GranularityBytes int
}
