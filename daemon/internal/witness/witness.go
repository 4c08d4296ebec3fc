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

// Kernel has the hypervisor's calls that this package makes. For an image with a network address
// the hypervisor asks QEMU instead of the kernel.
type Kernel interface {
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
}

// Held is how the process of a domain has an image open, according to the kernel.
type Held struct {
	Process        bool
	Open, Writable bool
	// PID is the number of a process that has the image open.
	PID int
	// Unasked is true if the process could not be asked. The image then counts as open for
	// writing.
	Unasked bool
}

// Look asks the kernel how a domain's process has the image at path open. A missing file is not
// open. Errors are typed for the runner.
func Look(ctx context.Context, k Kernel, id, name, path string) (Held, error) {
	all, err := LookAt(ctx, k, id, name, path)
	if err != nil {
		return Held{}, err
	}
	return all[0], nil
}

// LookAt does the same as Look for several images. If every path exists, it makes one call.
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

// Clients counts how often the processes of domains have the image at a network address open. Each
// time is one client of the image's server.
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

// Retry has the interval and the time limit for asking libvirt and the kernel again while they
// disagree. libvirt takes a moment to detect the death of a process, and QEMU to close an image.
type Retry struct {
	Poll, Bound time.Duration
}

// Heard has the answers of both witnesses, libvirt and the kernel, at one moment.
type Heard[V any] struct {
	// View is the hypervisor's answer.
	View V
	// Occupied is true if a call on the domain's process is unfinished, perhaps a call of this
	// daemon with a lost answer. The observation may then become wrong at any moment.
	Occupied bool
	// Disagree is the error if the witnesses contradict each other.
	Disagree error
}

// Agreed calls hear, which asks libvirt and the kernel, until they agree and no call is
// unfinished. It returns libvirt's answer. Without agreement in time, the outcome is unknown.
// Errors are typed for the runner.
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
