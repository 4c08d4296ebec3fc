// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/daemon/internal/network"
)

// mute listens at a socket, and sends nothing.
func mute(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket) //nolint:noctx // it takes no time
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "nbd+unix:///web?socket=" + socket
}

func TestAServerThatSaysNothingUntilTheDeadlineDoesNotAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := (network.Access{}).Answers(ctx, mute(t)); !errors.Is(err, nbd.ErrNoAnswer) {
		t.Errorf("it answers: %v", err)
	}
}

// A refusal is an answer; the kernel's error for an unreachable machine is none.
func TestAMachineThatNobodyReachesDoesNotAnswer(t *testing.T) {
	for errno, silent := range map[unix.Errno]bool{
		unix.EHOSTUNREACH: true, unix.ENETUNREACH: true, unix.EHOSTDOWN: true, unix.ETIMEDOUT: true, unix.ECONNREFUSED: false,
	} {
		a := network.Access{Dial: func(context.Context, string) (net.Conn, error) { return nil, fmt.Errorf("connect: %w", errno) }}
		if err := a.Answers(t.Context(), "nbd://nbd.example:10809/web"); errors.Is(err, nbd.ErrNoAnswer) != silent {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
