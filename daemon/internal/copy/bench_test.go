// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
)

// BenchmarkAgainstDdAndQemuImg copies 512 MiB of data into an allocated file with each engine in
// turn, src not in the page cache, dst on stable storage at the end. The machine's disk may be
// noisy: compare the ratios of one run.
func BenchmarkAgainstDdAndQemuImg(b *testing.B) {
	const size = 512 * miB
	src, dst := raw(b, "src", size, [2]int64{0, size}), raw(b, "dst", size, [2]int64{0, size})
	sync := func() { command(b, "sync", dst.Path) }
	engines := []struct {
		name string
		copy func()
	}{
		{"dd", func() {
			command(b, "dd", "bs=1M", "iflag=direct", "oflag=direct", "conv=notrunc,fsync", "if="+src.Path, "of="+dst.Path)
		}},
		{"qemu-img", func() {
			command(b, "qemu-img", "convert", "-n", "-W", "-m", "16", "-t", "none", "-T", "none", "-f", "raw", "-O", "raw", src.Path, dst.Path)
			sync()
		}},
		{"copy", func() { mustCopy(b, copy.Spec{Src: src, Dst: dst}) }},
		{"copy+verify", func() { mustCopy(b, copy.Spec{Src: src, Dst: dst, Verify: true}) }},
	}
	took := make([]time.Duration, len(engines))
	cpu := make([]time.Duration, len(engines))
	for b.Loop() {
		for i, engine := range engines {
			dropCache(b, src)
			started, cpuBefore := time.Now(), cpuTime(b)
			engine.copy()
			took[i] += time.Since(started)
			cpu[i] += cpuTime(b) - cpuBefore
		}
	}
	for i, engine := range engines {
		rate := float64(b.N) * size / miB / took[i].Seconds()
		b.ReportMetric(rate, engine.name+"-MiB/s")
		b.ReportMetric(float64(took[0])/float64(took[i]), engine.name+"-x-dd")
		b.ReportMetric(cpu[i].Seconds()/(float64(b.N)*size/(1<<30)), engine.name+"-cpu-s/GiB")
	}
	assertEqual(b, src, dst)
}

// cpuTime returns the CPU time of this process and its children.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

func dropCache(b *testing.B, image copy.Image) {
	b.Helper()
	f, err := os.Open(image.Path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, 4, 0, 0); errno != 0 {
		b.Fatal(fmt.Errorf("drop cache: %w", errno))
	}
}
