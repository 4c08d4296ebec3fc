// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
	major, err := qemuMajor(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if major >= 8 {
		tb.Logf("no I/O threads: emulated guests of QEMU %d lose interrupts with them", major)
	}
	return major < 8
}

// qemuMajor is the first number of the installed QEMU's version.
func qemuMajor(ctx context.Context) (int, error) {
	out, err := run(ctx, "qemu-system-x86_64", "--version")
	if err != nil {
		return 0, err
	}
	text := strings.TrimPrefix(out, "QEMU emulator version ")
	number, _, _ := strings.Cut(text, ".")
	major, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("read the version of QEMU in %q: %w", text, err)
	}
	return major, nil
}
