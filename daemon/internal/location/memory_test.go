// SPDX-License-Identifier: Apache-2.0

package location

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestATmpfsHasNoMoreRoomThanThereIsMemory(t *testing.T) {
	const text = "MemTotal:       24000000 kB\nMemFree:          500000 kB\nMemAvailable:    1500000 kB\nBuffers:  1 kB\n"
	if got, err := availableMemory([]byte(text)); err != nil || got != 1500000<<10 {
		t.Errorf("available are %d (%v)", got, err)
	}
	if got, err := availableMemory([]byte("MemTotal:       24000000 kB\n")); err == nil {
		t.Errorf("of a kernel that does not say, %d are available", got)
	}
	const tmpfs = "/dev/shm"
	if inMemory, err := InMemory(tmpfs); err != nil || !inMemory {
		t.Skipf("SKIPPED: this machine has no tmpfs at %s (%v)", tmpfs, err)
	}
	free, err := DirFreeBytes(tmpfs)
	if err != nil {
		t.Fatal(err)
	}
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	available, err := availableMemory(meminfo)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(tmpfs, &st); err != nil {
		t.Fatal(err)
	}
	const drift = 1 << 30                                                                    // other programs
	if most := min(available, int64(st.Bavail)*st.Bsize) + drift; free <= 0 || free > most { //nolint:gosec // no filesystem is as large
		t.Errorf("there are %d bytes free, with %d of memory", free, available)
	}
}
