// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProgramWhoseUnitHasNoNetworkIsToldOfTheSocketUnit(t *testing.T) {
	refused := &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("socket", unix.EAFNOSUPPORT)}
	if err := withoutNetwork(refused); !errors.Is(err, refused) || !strings.Contains(err.Error(), "socket unit") {
		t.Errorf("error = %v", err)
	}
	taken := &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", unix.EADDRINUSE)}
	if err := withoutNetwork(taken); !errors.Is(err, taken) || strings.Contains(err.Error(), "socket unit") {
		t.Errorf("error of an address that is taken = %v", err)
	}
	if err := withoutNetwork(nil); err != nil {
		t.Errorf("error where there is none = %v", err)
	}
}
