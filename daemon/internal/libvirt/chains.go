// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
	"github.com/volferry/volferry/daemon/internal/process"
)

// SetConfigChain replaces the images of one disk of the persistent definition, in one step with
// the whole <disk>. It edits the XML text, which keeps elements unknown to Go types.
func (ch *chains) SetConfigChain(ctx context.Context, id, target string, chain []hv.Image) error {
	if err := ch.setConfigChain(ctx, id, target, chain); err != nil {
		return fmt.Errorf("set persistent chain of disk %s of domain %s: %w", target, id, err)
	}
	return nil
}

func (ch *chains) setConfigChain(ctx context.Context, id, target string, chain []hv.Image) error {
	s, err := ch.connection.windows()
	if err != nil {
		return err
	}
	dom, err := handle(id)
	if err != nil {
		return err
	}
	doc, err := configXML(ctx, s, dom)
	if err != nil {
		return err
	}
	if same, err := domainxml.HasConfigChain(doc, target, chain, ch.clusters); err != nil || same {
		ch.library.note(keptDefinitions, nil) // even if another program changed it
		return err
	}
	edited, err := domainxml.Rechain(doc, target, chain, ch.clusters)
	if err != nil {
		return err
	}
	// See modify: an abandoned call still takes effect.
	_, err = changing(context.WithoutCancel(ctx), ch.library, s, s.callTimeout, keptDefinitions, func(lv *golibvirt.Libvirt) (none, error) {
		return none{}, lv.DomainUpdateDeviceFlags(dom, edited, golibvirt.DomainDeviceModifyConfig)
	})
	if err != nil {
		return err
	}
	if doc, err = configXML(ctx, s, dom); err != nil {
		return err
	}
	same, err := domainxml.HasConfigChain(doc, target, chain, ch.clusters)
	if err == nil && !same {
		err = errors.New("libvirt accepted the change and does not show it")
	}
	return err
}

// snapshotFlags: disks only, onto prepared files, all or nothing, without a snapshot object in
// libvirt.
const snapshotFlags = golibvirt.DomainSnapshotCreateDiskOnly | golibvirt.DomainSnapshotCreateReuseExt |
	golibvirt.DomainSnapshotCreateAtomic | golibvirt.DomainSnapshotCreateNoMetadata

// Snapshot puts overlay on top of the live chain. QEMU drains and flushes the previous top image
// and reopens it read-only before it answers.
func (ch *chains) Snapshot(ctx context.Context, id, target string, overlay hv.Image) (held time.Duration, err error) {
	dom, err := ch.domains.Domain(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("snapshot disk %s: %w", target, err)
	}
	// On a domain that is off libvirt would edit the definition instead.
	if !dom.State.Active() {
		return 0, fmt.Errorf("snapshot disk %s of domain %s: %w", target, id, hv.ErrNotActive)
	}
	if dom.LiveDisk(target) == nil {
		return 0, fmt.Errorf("snapshot disk %s of domain %s: %w: no such disk", target, id, hv.ErrNotFound)
	}
	doc, err := domainxml.SnapshotXML(dom.Live, target, overlay)
	if err != nil {
		return 0, fmt.Errorf("snapshot disk %s of domain %s: %w", target, id, err)
	}
	// QEMU flushes the previous top image, which waits for storage. If the definition names that
	// image, libvirt changes it to the overlay.
	holding := ch.holding(ctx, id, overlay.Path)
	err = ch.leases.takingImage(ctx, id, overlay, func() error {
		return ch.calls.modifyByItself(ctx, longCallTimeout, id, keptDefinitions, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			_, err := lv.DomainSnapshotCreateXML(dom, doc, uint32(snapshotFlags))
			return err
		})
	})
	return holding(), ch.calls.changed(ctx, "snapshot", id, target, err)
}

// openedBound is how long the answer about an open image may take after QEMU has opened it.
const openedBound = 100 * time.Millisecond

// holding begins to measure, and the returned function returns for how long at most QEMU has held
// back the writes of a domain. QEMU holds back none before it has opened the overlay at path, but
// libvirt may work long before that: it compiles the rules of AppArmor.
func (ch *chains) holding(ctx context.Context, id, path string) (held func() time.Duration) {
	began := time.Now()
	all := func() time.Duration { return time.Since(began) }
	image, err := process.Identify(path)
	if err != nil {
		return all
	}
	pid, _, err := ch.processes.onlyProcess(ctx, id)
	if err != nil {
		return all
	}
	ctx, cancel := context.WithCancel(ctx)
	answer := make(chan time.Duration, 1)
	began = time.Now()
	go func() {
		closed, err := ch.processes.kernel.ClosedFor(ctx, pid, image)
		if err != nil {
			closed = 0
		}
		answer <- closed
	}()
	return func() time.Duration {
		defer cancel()
		took := all()
		select {
		case closed := <-answer:
			return max(0, took-closed)
		case <-time.After(openedBound):
			return took
		}
	}
}

func (ch *chains) StoredBitmaps(ctx context.Context, id string) ([]hv.StoredBitmap, error) {
	nodes, err := ch.calls.blockNodes(ctx, id)
	if err != nil {
		return nil, err
	}
	var all []hv.StoredBitmap
	for _, n := range nodes {
		for _, b := range n.DirtyBitmaps {
			if b.Persistent {
				all = append(all, hv.StoredBitmap{Name: b.Name, Node: n.Name, Path: n.Path(), Idle: !b.Recording || b.Inconsistent})
			}
		}
	}
	return all, nil
}
