// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/process"
)

// Process implements hv.Hypervisor. A process can falsely claim to be the domain: see trueClaims.
func (ps *guestProcesses) Process(ctx context.Context, id, target string) (hv.Process, error) {
	p, err := ps.whichProcess(ctx, strings.ToLower(id), target)
	if err != nil {
		return hv.Process{}, fmt.Errorf("find the process of domain %s: %w", id, err)
	}
	return p, nil
}

func (ps *guestProcesses) whichProcess(ctx context.Context, id, target string) (p hv.Process, err error) {
	pid, about, err := ps.onlyProcess(ctx, id)
	if err != nil {
		return p, err
	}
	if p.ID, err = identity(pid, about); err != nil {
		return p, err
	}
	for _, n := range about.Nodes {
		p.Images = append(p.Images, n.Filename)
	}
	disk, err := ps.domains.diskElement(ctx, id, hv.Live, target)
	if errors.Is(err, hv.ErrNotFound) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	if source := disk.SelectElement("source"); source != nil {
		path := source.SelectAttrValue("file", source.SelectAttrValue("dev", ""))
		name := "libvirt-" + source.SelectAttrValue("index", "") + "-storage"
		p.Kept = slices.Contains(about.Nodes, process.Node{Filename: path, Name: name})
	}
	return p, nil
}

func (ps *guestProcesses) onlyProcess(ctx context.Context, id string) (pid int, about process.About, err error) {
	found, err := ps.claims(ctx, id, nil)
	if err == nil {
		err = ps.oneIsTrue(ctx, id, found)
	}
	if err != nil {
		return 0, about, err
	}
	if found, err = ps.trueClaims(ctx, id, found); err != nil {
		return 0, about, err
	}
	if len(found) != 1 {
		return 0, about, fmt.Errorf("%w: several name its UUID (%s); end those that are no guest of libvirt", hv.ErrNoProcess, claimants(found))
	}
	about, err = ps.about(ctx, found[0].PID)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		err = hv.ErrNotActive // ended since
	}
	return found[0].PID, about, err
}

// trueClaims returns the claims of the domain's user, if any, because any user could make the
// others. It returns a single claim unchecked.
func (ps *guestProcesses) trueClaims(ctx context.Context, id string, found []process.Claim) ([]process.Claim, error) {
	if len(found) == 1 {
		return found, nil
	}
	user, err := ps.qemuUser(ctx, id)
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return nil, err
	case errors.Is(err, hv.ErrNotFound):
		return nil, hv.ErrNotActive
	case err != nil:
		return nil, fmt.Errorf("%w: several name its UUID (%s): %w", hv.ErrNoProcess, claimants(found), err)
	}
	if theirs := slices.DeleteFunc(slices.Clone(found), func(p process.Claim) bool { return p.UID != user.UID }); len(theirs) > 0 {
		return theirs, nil
	}
	return found, nil
}

// identity returns a text that no other process has: a PID is reused, but not with the same boot
// and start time.
func identity(pid int, p process.About) (string, error) {
	if p.Ticks == "" {
		return "", fmt.Errorf("%w: the kernel does not say when process %d was started", hv.ErrNoProcess, pid)
	}
	boot, err := os.ReadFile(filepath.Join(string(procDir), "sys", "kernel", "random", "boot_id"))
	if err != nil {
		return "", err
	}
	return strings.Join([]string{strings.TrimSpace(string(boot)), strconv.Itoa(pid), p.Ticks}, "/"), nil
}
