// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/beevik/etree"
	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
	"github.com/volferry/volferry/daemon/internal/libvirt/lockd"
)

// With its lock manager lockd, libvirt drops the leases of a guest's disks at a suspend, and takes
// them at the resume. An image that a disk of a suspended guest gets (by a pivot or a hot plug)
// has a lease at once: libvirt then refuses the resume, because of the guest's own lease. libvirt
// also keeps the lease of the base of an aborted active commit, and refuses the next commit. A
// resume that is refused for one disk keeps the leases of the disks before it, and the next resume
// is refused for these. QEMU's own cont would resume the guest without the leases of its other
// disks. So Volferry drops such a lease as libvirtd does: after each change that leaves one
// (leavingNoLease), and, if libvirt still refuses a lease, before another try (takingAgain).

func (ls *leases) CanSwitch(ctx context.Context, images ...string) error {
	conf, err := lockd.Read(ls.library.definitions)
	if err != nil {
		return err
	}
	if why := conf.Unswitchable(images...); why != "" {
		return fmt.Errorf("%w: %s", hv.ErrUnsupported, why)
	}
	if !conf.Used() {
		return nil
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", ls.socket)
	if err != nil {
		return fmt.Errorf("%w: virtlockd, which has the leases of its guests (lock_manager in qemu.conf), does not answer: %w", hv.ErrUnsupported, err)
	}
	return conn.Close()
}

// resumeWithLeases resumes a suspended domain after libvirt refused that because a lease of the
// domain is taken: a suspended domain must have none of the leases that libvirt takes at the
// resume.
func (ls *leases) resumeWithLeases(ctx context.Context, id string, refused error, resume func() error) error {
	conf, err := lockd.Read(ls.library.definitions)
	if err != nil {
		return errors.Join(refused, err)
	}
	if !conf.Used() {
		return refused
	}
	state, err := ls.domains.RunState(ctx, id)
	if err != nil {
		return errors.Join(refused, err)
	}
	if state.State != hv.StatePaused { // a running domain needs its leases
		return refused
	}
	leases, err := ls.leasesOf(ctx, id, conf)
	if err != nil {
		return errors.Join(refused, err)
	}
	return ls.takingAgain(ctx, id, leases, resume)
}

// takingImage makes a call that lets libvirt take the lease of an image for a running domain. If
// the lease is taken, it drops the process's own hold, left by an aborted job or a libvirtd that
// died, and repeats the call.
func (ls *leases) takingImage(ctx context.Context, id string, image hv.Image, do func() error) error {
	err := do()
	if !said(err, golibvirt.ErrResourceBusy) {
		return err
	}
	conf, confErr := lockd.Read(ls.library.definitions)
	if confErr != nil || !conf.Used() {
		return err
	}
	l := conf.LeaseOf(&hv.Disk{Chain: []hv.Image{image}})
	if l == nil {
		return err
	}
	return ls.takingAgain(ctx, id, []lockd.Lease{*l}, do)
}

// takingAgain drops the process's holds on these leases, and makes a call that lets libvirt take
// them. If the call fails, takingAgain itself takes the dropped leases again.
func (ls *leases) takingAgain(ctx context.Context, id string, leases []lockd.Lease, do func() error) error {
	ctx = context.WithoutCancel(ctx) // dropped leases must be taken again
	pid, dropped, err := ls.drop(ctx, id, leases, true)
	if err == nil {
		err = do()
	}
	if err == nil || len(dropped) == 0 {
		return err
	}
	// virtlockd has no wait, and the call may have exceeded the time limit of the conversation.
	again, dialErr := lockd.Dial(ctx, ls.socket, id, pid)
	if dialErr != nil {
		return errors.Join(err, dialErr)
	}
	defer again.Close()
	for _, l := range dropped {
		var refused *lockd.RefusedError // libvirt took it before it met another guest's lease
		if takeErr := again.Acquire(l); takeErr != nil && !errors.As(takeErr, &refused) {
			ls.log.Warn("a lease was not taken again", "domain", id, "lease", l.Name, "err", takeErr)
		}
	}
	return err
}

// drop drops one hold of the process on each of these leases, or every hold if all is true, and
// returns the dropped leases. A lease of a shareable disk may have several holds.
func (ls *leases) drop(ctx context.Context, id string, leases []lockd.Lease, all bool) (pid int, dropped []lockd.Lease, err error) {
	if pid, _, err = ls.processes.onlyProcess(ctx, id); err != nil {
		return 0, nil, fmt.Errorf("find the process of domain %s: %w", id, err)
	}
	v, err := lockd.Dial(ctx, ls.socket, id, pid)
	if err != nil {
		return 0, nil, err
	}
	defer v.Close()
	for _, l := range leases {
		err = v.Release(l)
		for err == nil && l.Shared && all {
			dropped = append(dropped, l)
			err = v.Release(l)
		}
		var refused *lockd.RefusedError
		switch {
		case err == nil:
			dropped = append(dropped, l)
		case !errors.As(err, &refused): // a refusal: the process does not have it
			return pid, dropped, fmt.Errorf("drop the lease of %s: %w", l.Name, err)
		}
	}
	return pid, dropped, nil
}

// leavingNoLease makes a change to the images of a live disk, and then drops the leases of these
// images that the guest does not need: a suspended guest needs none, and a running guest only the
// lease of the image that it writes to. newTop is true if the change gives the disk another top
// image.
func (ls *leases) leavingNoLease(ctx context.Context, id, target string, newTop bool, do func() error) error {
	conf, err := lockd.Read(ls.library.definitions)
	if err != nil {
		return err
	}
	if !conf.Used() || !conf.Auto {
		return do()
	}
	before, err := ls.domains.Domain(ctx, id)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	after, err := ls.domains.Domain(ctx, id)
	if err == nil {
		if leases := conf.Needless(before, after, target, newTop); len(leases) > 0 {
			_, _, err = ls.drop(ctx, id, leases, false)
		}
	}
	if err != nil { // the change is made, and Resume and takingImage can handle the lease
		ls.log.Warn("a guest may have a lease that it does not need", "domain", id, "disk", target, "err", err)
	}
	return nil
}

// leasesOf lists the leases that libvirt takes for a domain at a resume, as far as their names are
// known.
func (ls *leases) leasesOf(ctx context.Context, id string, conf lockd.Settings) ([]lockd.Lease, error) {
	text, err := ls.domains.describedXML(ctx, id, hv.Live)
	if err != nil {
		return nil, fmt.Errorf("read the leases of domain %s: %w", id, err)
	}
	known, err := ls.domains.poolSourcesIn(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("read the leases of domain %s: %w", id, err)
	}
	dom, err := domainxml.ParseDomain(text, known, ls.clusters)
	if err != nil {
		return nil, err
	}
	doc := etree.NewDocument()
	if err := doc.ReadFromString(text); err != nil {
		return nil, fmt.Errorf("parse domain XML: %w", err)
	}
	var leases []lockd.Lease
	for _, l := range doc.FindElements("/domain/devices/lease") {
		if target := l.SelectElement("target"); target != nil {
			leases = append(leases, lockd.Lease{
				Lockspace: target.SelectAttrValue("path", "") + "/" + domainxml.TextIn(l, "lockspace"), Name: domainxml.TextIn(l, "key"),
			})
		}
	}
	for i := range dom.Disks {
		if l := conf.LeaseOf(&dom.Disks[i]); l != nil {
			leases = append(leases, *l)
		}
	}
	return leases, nil
}
