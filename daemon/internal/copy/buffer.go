// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// alignBytes is the alignment that O_DIRECT needs for offsets, lengths and memory. It suffices for
// every device with sectors of up to 4 KiB.
const alignBytes = 4096

// hugePageBytes is the size of a huge page.
const hugePageBytes = 2 << 20

// newBuffer returns n bytes of memory that is aligned for O_DIRECT.
func newBuffer(n int) []byte { return alignTo(make([]byte, n+alignBytes), alignBytes, n) }

// newArena returns n bytes for the buffers of all workers, in huge pages if the kernel has some. A
// chunk is then a few segments for the device and not 256. That more than doubles the speed of a
// fast device. free releases the memory.
func newArena(n int) (arena []byte, free func()) {
	whole, err := unix.Mmap(-1, 0, n+2*hugePageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return newBuffer(n), func() {}
	}
	_ = unix.Madvise(whole, unix.MADV_HUGEPAGE) // best effort
	return alignTo(whole, hugePageBytes, n), func() { _ = unix.Munmap(whole) }
}

// alignTo returns the first n bytes of b at an address that is a multiple of align.
func alignTo(b []byte, align, n int) []byte {
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (align - 1)
	return b[skip : skip+n : skip+n]
}
