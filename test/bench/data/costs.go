// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/volferry/volferry/test/bench/meter"
)

// counters are what the kernel has counted up to a moment.
type counters struct {
	at          time.Time
	mover       time.Duration
	qemu        time.Duration
	qemuWritten int64 // bytes
	src, dst    meter.DiskBytes
}

// count reads them. qemu is the process of the guest, 0 if there is none, and to is where the
// volume is moved to.
func (s *stage) count(qemu int, to pool) (c counters, err error) {
	var errs [6]error
	c.at = time.Now()
	var daemon time.Duration
	daemon, errs[0] = meter.FamilyTime(s.site.DaemonPID())
	c.mover, errs[1] = meter.ChildrenTime() // the commands
	c.mover += daemon
	if qemu != 0 {
		c.qemu, errs[2] = meter.ProcessTime(qemu)
		c.qemuWritten, errs[3] = meter.WrittenBy(qemu)
	}
	c.src, errs[4] = meter.DiskUnder(s.src.dir)
	c.dst, errs[5] = meter.DiskUnder(to.dir)
	return c, errors.Join(errs[:]...)
}

// resetPeaks has the peaks of memory be those from now on.
func (s *stage) resetPeaks(qemu int) error {
	err := meter.ResetPeak(s.site.DaemonPID())
	if qemu != 0 {
		err = errors.Join(err, meter.ResetPeak(qemu))
	}
	return err
}

// costOf is what was used since an earlier count, and the peaks.
func (s *stage) costOf(before, after counters, qemu int) (*cost, error) {
	daemon, err := meter.MemoryOf(s.site.DaemonPID())
	c := &cost{
		MoverCPUSeconds: (after.mover - before.mover).Seconds(), QEMUCPUSeconds: (after.qemu - before.qemu).Seconds(),
		QEMUWrittenBytes: after.qemuWritten - before.qemuWritten, DaemonPeakBytes: daemon.Peak,
		Src: after.src.Since(before.src), Dst: after.dst.Since(before.dst),
	}
	if qemu != 0 {
		of, qemuErr := meter.MemoryOf(qemu)
		c.QEMUPeakBytes, err = of.Peak, errors.Join(err, qemuErr)
	}
	return c, err
}

// qemuOf is the process of a running guest.
func (s *stage) qemuOf(guest string) (int, error) {
	text, err := os.ReadFile(filepath.Join(s.site.Libvirtd.RunDir, "qemu", guest+".pid"))
	if err != nil {
		return 0, fmt.Errorf("find QEMU of %s: %w", guest, err)
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
