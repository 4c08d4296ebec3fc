// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// onLive makes one call on a domain, or on a live disk of it if target is not empty. Error texts
// begin with the string in what.
func onLive[T any](ctx context.Context, c *calls, s *session, what, id, target string,
	do func(*golibvirt.Libvirt, golibvirt.Domain) (T, error),
) (T, error) {
	where := nameOf(id, target)
	var zero T
	dom, err := handle(id)
	if err != nil {
		return zero, fmt.Errorf("%s %s: %w", what, where, err)
	}
	result, err := call(ctx, s, func(lv *golibvirt.Libvirt) (T, error) { return do(lv, dom) })
	if err != nil {
		return zero, fmt.Errorf("%s %s: %w", what, where, c.explain(ctx, id, target, err))
	}
	return result, nil
}

// changing is callWithin for a call that may change these files of libvirt.
func changing[T any](ctx context.Context, l *library, s *session, limit time.Duration, files kept, do func(*golibvirt.Libvirt) (T, error)) (T, error) {
	value, err := callWithin(ctx, s, limit, do)
	l.note(files, err)
	return value, err
}

// modify makes one changing call, unless ctx has ended. The end of ctx does not interrupt the
// call: it would then take effect later, after the caller has looked at the result. Only the end
// of the session interrupts it. The call may change these files of libvirt.
func (c *calls) modify(ctx context.Context, id string, files kept, do domainCall) error {
	s, err := c.connection.changes()
	if err != nil {
		return err
	}
	return c.modifyOn(ctx, s, s.callTimeout, id, files, do)
}

type domainCall = func(*golibvirt.Libvirt, golibvirt.Domain) error

func (c *calls) modifyOn(ctx context.Context, s *session, limit time.Duration, id string, files kept, do domainCall) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", hv.ErrUnavailable, context.Cause(ctx))
	}
	ctx = context.WithoutCancel(ctx)
	dom, err := handle(id)
	if err != nil {
		return err
	}
	_, err = changing(ctx, c.library, s, limit, files, func(lv *golibvirt.Libvirt) (none, error) { return none{}, do(lv, dom) })
	return err
}

func (c *calls) modifyByItself(ctx context.Context, limit time.Duration, id string, files kept, do domainCall) error {
	return c.connection.byItself(ctx, func(ctx context.Context, s *session) error { return c.modifyOn(ctx, s, limit, id, files, do) })
}

// change is modify for a call on a domain's process, or on a live disk of it if target is not
// empty. The call changes no libvirt files.
func (c *calls) change(ctx context.Context, what, id, target string, do domainCall) error {
	return c.changed(ctx, what, id, target, c.modify(ctx, id, keptNothing, do))
}

func (c *calls) changed(ctx context.Context, what, id, target string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, nameOf(id, target), c.explain(context.WithoutCancel(ctx), id, target, err))
}

// inWindow is change for a call that suspends or resumes a guest, on the session for such calls.
func (c *calls) inWindow(ctx context.Context, what, id string, do domainCall) error {
	s, err := c.connection.windows()
	if err == nil {
		err = c.modifyOn(ctx, s, s.callTimeout, id, keptNothing, do)
	}
	return c.changed(ctx, what, id, "", err)
}

func (c *calls) endJob(ctx context.Context, what, id, target string, changes kept, do domainCall) error {
	s, err := c.connection.jobEnds()
	if err == nil {
		err = c.modifyOn(ctx, s, longCallTimeout, id, changes, do)
	}
	return c.changed(ctx, what, id, target, err)
}

func nameOf(id, target string) string {
	if target == "" {
		return "domain " + id
	}
	return "disk " + target + " of domain " + id
}

// explain finds the reason of an ambiguous refusal. libvirt answers "invalid argument" for an
// absent disk and "operation invalid" for a domain that is off, but both also for other reasons.
func (c *calls) explain(ctx context.Context, id, target string, err error) error {
	if !said(err, golibvirt.ErrInvalidArg) && !said(err, golibvirt.ErrOperationInvalid) {
		return err
	}
	dom, readErr := c.domains.Domain(ctx, id)
	switch {
	case readErr != nil:
		return fmt.Errorf("%w; and then: %w", err, readErr)
	case !dom.State.Active():
		return fmt.Errorf("%w: %w", hv.ErrNotActive, err)
	case target != "" && dom.LiveDisk(target) == nil:
		return fmt.Errorf("%w: %w", hv.ErrNotFound, err)
	}
	return err
}
