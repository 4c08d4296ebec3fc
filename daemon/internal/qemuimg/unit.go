// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"net"
	"os/exec"
	"sync/atomic"

	"github.com/volferry/volferry/daemon/internal/child"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/daemon/internal/storagedaemon"
)

// Program is qemu-img.
const Program = "qemu-img"

// Find returns the path of qemu-img, or an error if it is not installed.
func Find() (string, error) { return exec.LookPath(Program) }

var unit atomic.Pointer[sandbox.Programs]

// RunInUnit makes the QEMU programs run in their own systemd units, once the programs of an
// earlier daemon process have ended.
func RunInUnit(ctx context.Context, programs sandbox.Programs) error {
	if err := programs.Await(ctx); err != nil {
		return err
	}
	unit.Store(&programs)
	return nil
}

func starter() child.Starter {
	if programs := unit.Load(); programs != nil {
		return programs.Start
	}
	return child.Start
}

// RunFor is called in such a unit: it runs one QEMU program for the daemon at the other end of
// conn.
func RunFor(ctx context.Context, conn *net.UnixConn) error {
	return sandbox.RunProgram(ctx, conn, []string{Program, storagedaemon.Program}, confine)
}
