// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

const (
	// askEvery is the interval of requests to a guest: a booting guest may ignore the first
	// request.
	askEvery  = 5 * time.Second
	lookEvery = time.Second
)

// unplug asks the running guest to release the disk, and waits until libvirt shows that, or that
// the guest is off. After the timeout it returns instance_busy; the guest may still release the
// disk. It asks a paused guest only once it runs: otherwise the guest might answer when no op
// waits.
func (e *env) unplug(ctx context.Context, in *input) error {
	return e.unplugAfter(ctx, in, func(*view) error { return nil })
}

// unplugAfter is unplug, and calls asking before the first request to each process. If asking
// fails, there is no request.
func (e *env) unplugAfter(ctx context.Context, in *input, asking func(*view) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := e.Domains.Events(ctx)
	over := time.NewTimer(e.unplugTimeout)
	defer over.Stop()
	var asked time.Time
	var run int // the asked process
	var refusal error
	for {
		v, err := e.look(ctx, in)
		switch {
		case err != nil:
			return err
		case v.live == absent:
			return nil
		case v.live == odd:
			return in.stands(v, absent)
		}
		if answers(v) && (asked.IsZero() || time.Since(asked) >= askEvery) {
			if v.dom.Run != run {
				if err := asking(v); err != nil {
					return err
				}
				run = v.dom.Run
			}
			asked = time.Now()
			if refusal, err = e.ask(ctx, in); err != nil {
				return err
			}
			if refusal == nil {
				continue // some guests release it at once
			}
		}
		if more, err := hv.Await(ctx, events, in.InstanceID, lookEvery, over.C); err != nil {
			return err
		} else if !more {
			if _, err := e.sure(ctx, in); err != nil {
				return err
			}
			return in.keeps(v, e.unplugTimeout, refusal)
		}
	}
}

// answers reports whether the domain can release the disk now. A paused domain can do so only on a
// bus where the hypervisor alone removes disks.
func answers(v *view) bool {
	return v.dom.State == hv.StateRunning || (v.dom.State == hv.StatePaused && v.liveDisk.Bus == "scsi")
}

func (e *env) ask(ctx context.Context, in *input) (refusal, err error) {
	err = e.Disks.DetachDisk(ctx, in.InstanceID, hv.Live, in.Device)
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, hv.ErrUnavailable):
		return nil, request.HV(err)
	case errors.Is(err, hv.ErrUnsupported):
		return nil, api.Errorf(api.CodeUnsupportedDisk, "cannot detach disk %s of instance %s while it runs: %v; stop the instance and detach again", in.Device, in.InstanceName, err)
	}
	return err, nil
}

func (in *input) keeps(v *view, after time.Duration, refusal error) error {
	why := "; a guest that boots, or that has the disk in use, may not answer: unmount it there and detach again, or stop the instance first"
	switch {
	case v.dom.State == hv.StatePaused:
		why = ": it is paused, and lets go only when it runs; resume it and detach again, or stop it first"
	case refusal != nil:
		why = fmt.Sprintf(" (%v)%s", refusal, why)
	}
	return api.Errorf(api.CodeInstanceBusy, "instance %s did not let go of disk %s within %s%s", in.InstanceName, in.Device, after, why)
}
