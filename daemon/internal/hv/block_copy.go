// SPDX-License-Identifier: Apache-2.0

package hv

// BlockCopyOptions are the options of BlockCopy.
type BlockCopyOptions struct {
	// Shallow copies the top layer only. Just before the call, the caller must have seen a backing
	// image in the live chain: without one QEMU silently zeroes the target and makes a full copy.
	Shallow bool
	// Backing are the images below the target, top first. They must have the content of the disk's
	// layers below its top. libvirt opens them in the pivot, so the job must not be Synchronous,
	// and its granularity must be the target's cluster size.
	Backing []Image
	// Synchronous mirrors every guest write before the write completes: the job converges under
	// any load.
	Synchronous bool
	// BandwidthBytesPerSecond caps the job; 0 means no cap.
	BandwidthBytesPerSecond int64
	// GranularityBytes is the granularity of the job's dirty bitmap, a power of two; 0 lets QEMU
	// choose.
	GranularityBytes int
}
