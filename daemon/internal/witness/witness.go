// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// Kernel is the needed part of a hypervisor. For an image at an address, QEMU itself answers,
// through the hypervisor.
type Kernel interface {
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
}

// Held is how, according to the kernel, the process of a domain has an image open.
type Held struct {
	Process        bool
	Open, Writable bool
	// PID is the number of a process that has the image open.
	PID int
	// Unasked: the process could not be asked; the image then counts as open for writing.
	Unasked bool
}

// Look asks the kernel how a domain's process has the image at path open. A missing file is not
// open. Name is the instance's name, for the error, which is typed for the runner.
func Look(ctx context.Context, k Kernel, id, name, path string) (Held, error) {
	all, err := LookAt(ctx, k, id, name, path)
	if err != nil {
		return Held{}, err
	}
	return all[0], nil
}

// LookAt is Look for several images, by one call if every path exists.
func LookAt(ctx context.Context, k Kernel, id, name string, paths ...string) ([]Held, error) {
	all := make([]Held, len(paths))
	files, err := k.OpenFiles(ctx, id, paths...)
	switch {
	case errors.Is(err, hv.ErrNotActive):
		return all, nil
	case errors.Is(err, fs.ErrNotExist) && len(paths) == 1:
		return []Held{{Process: true}}, nil
	case errors.Is(err, fs.ErrNotExist):
		for i, path := range paths {
			if all[i], err = Look(ctx, k, id, name, path); err != nil {
				return nil, err
			}
		}
		return all, nil
	case err != nil:
		return nil, request.AwaitHypervisor(fmt.Errorf("see whether instance %s has %s open: %w", name, strings.Join(paths, ", "), err))
	}
	for i, path := range paths {
		all[i].Process = true
		for _, f := range files {
			if f.Path == path {
				all[i].Open, all[i].Writable, all[i].PID = true, all[i].Writable || f.Writable, f.PID
				all[i].Unasked = f.Unasked()
			}
		}
	}
	return all, nil
}

// Clients counts how often the processes of domains have the image at an address open: each is one
// client of its server.
func Clients(ctx context.Context, k Kernel, address string, ids ...string) (n int, err error) {
	for _, id := range ids {
		files, err := k.OpenFiles(ctx, id, address)
		if err != nil && !errors.Is(err, hv.ErrNotActive) {
			return 0, fmt.Errorf("count the clients of %s: %w", address, err)
		}
		for _, f := range files {
			if f.Node != "" {
				n++
			}
		}
	}
	return n, nil
}

// Retry bounds how long disagreeing witnesses are asked again: libvirt takes a moment to detect
// the death of a process, and QEMU to close an image.
type Retry struct {
	Poll, Bound time.Duration
}

// Heard has the answers of both witnesses at one moment.
type Heard[V any] struct {
	// View is the hypervisor's answer.
	View V
	// Occupied: a call on the domain's process is under way, perhaps this daemon's with a lost
	// answer, so that the observation may become wrong at any moment.
	Occupied bool
	// Disagree is the error if the two answers contradict each other.
	Disagree error
}

// Agreed asks both witnesses until they agree and no call is under way, and returns the
// hypervisor's answer. If they do not agree in time, the outcome is unknown. Its errors, and the
// errors of hear, are typed for the runner. Name is the instance's name.
func Agreed[V any](ctx context.Context, p Retry, name string, hear func(context.Context) (Heard[V], error)) (view V, err error) {
	var h Heard[V]
	agreed, err := retry.Poll(ctx, p.Poll, p.Bound, func() (_ bool, err error) {
		h, err = hear(ctx)
		return h.Disagree == nil && !h.Occupied, err
	})
	switch {
	case err != nil:
		return view, err
	case agreed:
		return h.View, nil
	case h.Occupied:
		return view, op.WaitFor(request.WaitHypervisor, api.Errorf(api.CodeInstanceBusy, "a call of libvirt on instance %s is under way", name))
	}
	return view, op.UnknownOutcome(h.Disagree)
}
