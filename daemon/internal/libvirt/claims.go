// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/process"
)

// claims returns the processes that claim in their command line to be a domain, and their open
// files on some images. It returns ErrUnavailable if the program that reads /proc for the daemon
// does not answer.
func (ps *guestProcesses) claims(ctx context.Context, id string, images []process.Image) ([]process.Claim, error) {
	found, err := ps.kernel.Claims(ctx, id, images)
	return found, notAsked(err)
}

func (ps *guestProcesses) about(ctx context.Context, pid int) (process.About, error) {
	about, err := ps.kernel.About(ctx, pid)
	return about, notAsked(err)
}

func notAsked(err error) error {
	if _, answered := errors.AsType[syscall.Errno](err); err == nil || answered {
		return err
	}
	return &hv.NotAskedError{Err: err}
}

const maxClaimants = 4

// claimants names the processes that claim to be a domain, so that the operator can end the false
// ones.
func claimants(claims []process.Claim) string {
	if len(claims) == 0 {
		return "no process does"
	}
	var named []string
	for _, c := range claims[:min(len(claims), maxClaimants)] {
		named = append(named, fmt.Sprintf("process %d of user %d", c.PID, c.UID))
	}
	if len(claims) > maxClaimants {
		named = append(named, "more")
	}
	return strings.Join(named, ", ")
}

// procDir is a variable for the tests.
var procDir process.Dir = "/proc"
