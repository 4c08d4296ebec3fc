// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/qmp"
	"github.com/volferry/volferry/daemon/internal/process"
	"github.com/volferry/volferry/internal/medium"
)

// OpenFiles lists the process's open files on the images at these paths. For files and devices it
// reads /proc, as evidence independent of libvirt, so it works while libvirtd is down. It looks for
// the process once, because that takes long with many processes, and guests are paused meanwhile.
func (ps *guestProcesses) OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error) {
	files, err := ps.openFiles(ctx, strings.ToLower(id), paths)
	if err != nil {
		return nil, fmt.Errorf("list what domain %s has open on %s: %w", id, strings.Join(paths, ", "), err)
	}
	return files, nil
}

func (ps *guestProcesses) openFiles(ctx context.Context, id string, paths []string) ([]hv.OpenFile, error) {
	var addresses, local []string
	var wanted []process.Image
	for _, path := range paths {
		if !medium.Of(path).Witnessed {
			addresses = append(addresses, path)
			continue
		}
		is, err := process.Identify(path)
		if err != nil {
			return nil, err
		}
		local, wanted = append(local, path), append(wanted, is)
	}
	claims, err := ps.claims(ctx, id, wanted)
	if err != nil {
		return nil, err
	}
	// From all processes that claim to be the domain: a claim can be false, but an open file is
	// open, and a false claim cannot hide the true process's open files.
	var found []hv.OpenFile
	pid := 0
	for _, p := range claims {
		if p.Ended {
			continue
		}
		for _, f := range p.Files {
			found = append(found, hv.OpenFile{Path: local[f.Image], PID: p.PID, FD: f.FD, Writable: f.Writable})
		}
		pid = p.PID
	}
	if err := ps.oneIsTrue(ctx, id, claims); err != nil || len(addresses) == 0 {
		return found, err
	}
	nodes, err := ps.openNodes(ctx, id, pid, addresses)
	return append(found, nodes...), err
}

// oneIsTrue returns nil if one of the claims is by a user that the domain may run as. Otherwise it
// returns ErrNotActive if the domain is off, ErrUnavailable if libvirt does not answer, and else
// ErrNoProcess.
func (ps *guestProcesses) oneIsTrue(ctx context.Context, id string, claims []process.Claim) error {
	as := func(uid uint32) bool {
		return slices.ContainsFunc(claims, func(p process.Claim) bool { return p.UID == uid })
	}
	if user := ps.qemuDefault.Load(); as(0) || user != nil && as(user.UID) {
		return nil
	}
	dom, err := ps.domains.Domain(ctx, id)
	switch {
	case errors.Is(err, hv.ErrNotFound), err == nil && !dom.State.Active():
		return hv.ErrNotActive
	case err != nil:
		return err
	}
	user, err := ps.qemuUser(ctx, id)
	if err != nil {
		return fmt.Errorf("%w: %w", hv.ErrNoProcess, err)
	}
	if !as(user.UID) {
		return fmt.Errorf("%w: none of user %d names its UUID (%s)", hv.ErrNoProcess, user.UID, claimants(claims))
	}
	return nil
}

// openNodes lists the process's nodes for the images at these addresses, from QEMU's own block
// graph, because a libvirtd that died inside a call shows old chains afterwards.
func (ps *guestProcesses) openNodes(ctx context.Context, id string, pid int, addresses []string) ([]hv.OpenFile, error) {
	nodes, err := ps.calls.blockNodes(ctx, id)
	lost := errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound)
	if err != nil && !lost {
		return nil, err
	}
	var found []hv.OpenFile
	for _, address := range addresses {
		if lost {
			found = append(found, hv.OpenFile{Path: address, PID: pid, Writable: true})
			continue
		}
		names, writable, err := qmp.NodesAt(nodes, address, ps.clusters)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			found = append(found, hv.OpenFile{Path: address, PID: pid, Node: name, Writable: writable})
		}
	}
	return found, nil
}
