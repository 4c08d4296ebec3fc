// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// letGo determines the disks that a fence took from the host, sets guards, and then stops the
// instances with those disks. It continues after errors, and joins them.
func (l *losses) letGo(ctx context.Context) error {
	lost, err := l.settleLost(ctx)
	errs := []error{err}
	for _, d := range lost {
		errs = append(errs, l.guards.Set(d.InstanceID, guardOwner, d.reason()))
	}
	return errors.Join(append(errs, l.stopAll(ctx, lost)...)...)
}

func (l *losses) stopAll(ctx context.Context, lost []LostDisk) []error {
	errs := make([]error, len(lost))
	var all sync.WaitGroup
	for i, d := range lost {
		if !slices.ContainsFunc(lost[:i], func(o LostDisk) bool { return o.InstanceID == d.InstanceID }) {
			all.Go(func() { errs[i] = l.takeAway(ctx, d) })
		}
	}
	all.Wait()
	return errs
}

// takeAway stops a guarded domain, and verifies by a read that it is off. It also stops a domain
// that cannot be read.
func (l *losses) takeAway(ctx context.Context, d LostDisk) error {
	dom, err := l.hv.Domain(ctx, d.InstanceID)
	if errors.Is(err, hv.ErrNotFound) || err == nil && !dom.State.Active() {
		return nil
	}
	if err == nil && d.Unseen {
		if target, unknown := diskOn(dom, d.Path); target == "" && unknown == nil {
			return nil // the next round removes it from the lost disks
		}
	}
	l.log.Warn("stopping an instance that has lost a volume", "instance", d.InstanceName, "volume", d.VolumeID, "path", d.Path)
	offErr := l.hv.PowerOff(ctx, d.InstanceID)
	dom, err = l.hv.Domain(ctx, d.InstanceID)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("see whether instance %s, which has lost a volume, is off: %w", d.InstanceName, errors.Join(err, offErr))
	case dom.State.Active():
		return fmt.Errorf("instance %s has lost a volume and is still %s: %w", d.InstanceName, dom.State, errors.Join(errStillOn, offErr))
	}
	return nil
}

var errStillOn = errors.New("it could not be stopped")
