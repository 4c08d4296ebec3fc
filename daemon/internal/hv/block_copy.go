// SPDX-License-Identifier: Apache-2.0

package hv

// BlockCopyOptions are the options of BlockCopy.
type BlockCopyOptions struct {
	// Shallow copies the top layer only. The caller has just seen that the live
	// chain has a backing image: without one QEMU would quietly do a full copy
	// and zero the target first.
	Shallow bool
	// Backing are the images below the target, top first, if it is to keep them. Their content is
	// what the layers below the top of the disk read as. libvirt opens them in the pivot, so that
	// the job must not be Synchronous, and its granularity has to be that of the target's clusters.
	Backing []Image
	// Synchronous mirrors every guest write before it completes, so that the
	// job converges under any load.
	Synchronous bool
	// BandwidthBytesPerSecond caps the job; 0 is no cap.
	BandwidthBytesPerSecond int64
	// GranularityBytes of the dirty bitmap, a power of two; 0 lets QEMU choose.
	GranularityBytes int
}
