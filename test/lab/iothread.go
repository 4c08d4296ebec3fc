// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"testing"
)

// IOThreads reports whether a guest of the lab may have I/O threads, and says why in the log of the
// test if it may not.
//
// In QEMU 10, where it emulates the processor, the interrupt of a request that an I/O thread
// serves may be lost when the guest is suspended: the request is done, and the guest never hears
// of it, nor of those after it, since it has the event index of the lost one.
func IOThreads(tb testing.TB) bool {
	tb.Helper()
	major, _ := QEMUVersion(tb)
	if major >= 8 {
		tb.Logf("no I/O threads: emulated guests of QEMU %d lose interrupts with them", major)
	}
	return major < 8
}

// QEMUVersion returns the first two numbers of the installed QEMU's version.
func QEMUVersion(tb testing.TB) (major, minor int) {
	tb.Helper()
	out, err := run(tb.Context(), "qemu-system-x86_64", "--version")
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := fmt.Sscanf(out, "QEMU emulator version %d.%d", &major, &minor); err != nil {
		tb.Fatalf("read the version of QEMU in %q: %v", out, err)
	}
	return major, minor
}
