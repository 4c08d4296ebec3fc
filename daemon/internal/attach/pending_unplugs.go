// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// PendingUnplugs are the unplugs that a guest did not answer in time. Their detaches were
// given up, so the attachments still hold. QEMU forgets no unplug: the guest may still let
// go of the disk, at its next reboot at the latest. Safe for concurrent use.
type PendingUnplugs struct {
	hv      hv.Hypervisor
	journal UnplugJournal
	bootID  string

	loading sync.Mutex
	loaded  bool // what the journal knows is in all

	mu  sync.Mutex
	all map[string]pendingUnplug // by attachment
}

// pendingUnplug is one of them.
type pendingUnplug struct {
	input
	// asked is the process that has not answered; the zero one if none was asked.
	asked process
}

// process tells one process of a domain from the next; none is the zero one.
type process struct {
	// Boot is of this host, since libvirt counts anew after it.
	Boot string `json:"boot,omitempty"`
	Run  int    `json:"run,omitempty"`
}

// unplugNote is written before the guest is asked for the first time: from then on
// it may let go at any time, whatever became of the detach. Gone is written once it
// was seen without the disk: a state that is saved from then on does not have it.
type unplugNote struct {
	Asked process `json:"process,omitzero"`
	Gone  bool    `json:"gone,omitempty"`
}

// NewPendingUnplugs returns the pending unplugs of this host. It reads them from the
// journal when they are first needed. BootID tells one boot of this host from another.
func NewPendingUnplugs(h hv.Hypervisor, journal UnplugJournal, bootID string) *PendingUnplugs {
	return &PendingUnplugs{hv: h, journal: journal, bootID: bootID, all: map[string]pendingUnplug{}}
}

// processOf is the process of an active domain.
func (p *PendingUnplugs) processOf(v *view) process { return process{Boot: p.bootID, Run: v.dom.Run} }

func (p *PendingUnplugs) add(in *input, asked process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked = cmp.Or(asked, p.all[in.AttachmentID].asked) // by a detach before
	p.all[in.AttachmentID] = pendingUnplug{*in, asked}
}

// unplugOverPrefix begins the keys under which the journal has, for each attachment, the process
// whose unplug is over.
const unplugOverPrefix = "unplug_over/"

// isOver reports whether the unplug of a process is not pending any more: the guest was booted
// since. Another process alone shows nothing, since one that was restored from a save image has the
// requests of the process that was saved.
func (p *PendingUnplugs) isOver(in *pendingUnplug, v *view) bool {
	return v.active && v.dom.Booted && in.asked != p.processOf(v)
}

// end drops a pending unplug that is over, durably: a later pause of the guest hides that the
// guest was booted.
func (p *PendingUnplugs) end(ctx context.Context, in *pendingUnplug) error {
	data, err := json.Marshal(in.asked)
	if err != nil {
		return fmt.Errorf("encode process: %w", err)
	}
	if err := p.journal.PutBlob(ctx, unplugOverPrefix+in.AttachmentID, data); err != nil {
		return err
	}
	p.drop(in.AttachmentID)
	return nil
}

// ended returns, by attachment, the processes whose unplugs are over.
func (p *PendingUnplugs) ended(ctx context.Context) (map[string]process, error) {
	blobs, err := p.journal.Blobs(ctx, unplugOverPrefix)
	if err != nil {
		return nil, err
	}
	all := map[string]process{}
	for key, data := range blobs {
		var of process
		if err := json.Unmarshal(data, &of); err != nil {
			return nil, fmt.Errorf("read %s of the journal: %w", key, err)
		}
		all[strings.TrimPrefix(key, unplugOverPrefix)] = of
	}
	return all, nil
}

func (p *PendingUnplugs) drop(attachmentID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, attachmentID)
}

func (p *PendingUnplugs) list() []pendingUnplug {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.all))
}

// load finds in the journal, once, the unplugs that were pending when the daemon before
// this one ended. It takes every detach of an attachment into account, as that daemon did: the
// last one may have been given up before it asked.
func (p *PendingUnplugs) load(ctx context.Context) error {
	p.loading.Lock()
	defer p.loading.Unlock()
	if p.loaded {
		return nil
	}
	ops, err := p.journal.Ops(ctx, kindDetach, false)
	if err != nil {
		return err
	}
	found := map[string]pendingUnplug{}
	for _, o := range ops {
		records, err := p.journal.Records(ctx, o.ID)
		if err != nil {
			return err
		}
		var in input
		if err := json.Unmarshal(o.Input, &in); err != nil {
			continue
		}
		switch asked, end := howItEnded(records); end {
		case detachGivenUp:
			found[o.Group] = pendingUnplug{in, cmp.Or(asked, found[o.Group].asked)}
		case detachDone:
			delete(found, o.Group) // the guest has let go
		case detachHasNotAsked:
		}
	}
	over, err := p.ended(ctx)
	if err != nil {
		return err
	}
	for attachmentID, of := range found {
		if of.asked == (process{}) || of.asked != over[attachmentID] {
			p.add(&of.input, of.asked)
		}
	}
	p.loaded = true
	return nil
}

// detachEnd is what became of the step of a detach that asks the guest.
type detachEnd int

const (
	detachHasNotAsked detachEnd = iota // or is at work
	detachGivenUp
	detachDone
)

// howItEnded says of a detach which process it asked to let go, and how that ended.
func howItEnded(records []op.Record) (asked process, end detachEnd) {
	for _, r := range records {
		if r.Step != stepNameDetachLive {
			continue
		}
		var note unplugNote
		if r.Kind == op.EventNoted && json.Unmarshal(r.Data, &note) == nil {
			asked = cmp.Or(note.Asked, asked)
		}
		switch r.Kind { //nolint:exhaustive // the others end nothing
		case op.EventUndoStarted:
			end = detachGivenUp
		case op.EventSucceeded:
			end = detachDone
		}
	}
	return asked, end
}

// MayMove refuses to move a volume with a pending unplug: in the middle of the move QEMU
// would lose the disk, with its overlay or its block job. The unplug is pending until the
// next start of the guest.
func (p *PendingUnplugs) MayMove(ctx context.Context, volumeID string) error {
	if err := p.load(ctx); err != nil {
		return api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
	}
	for _, in := range p.list() {
		if in.VolumeID != volumeID || in.asked == (process{}) {
			continue
		}
		v, err := look(ctx, p.hv, &in.input)
		if err != nil {
			return api.Errorf(api.CodeHypervisorUnavailable, "cannot look at instance %s: %v", in.InstanceName, err)
		}
		if v.saved || v.active && !p.isOver(&in, v) {
			return api.Errorf(api.CodeInstanceBusy,
				"cannot move volume %s: a detach was given up because instance %s did not answer, and it may still let go of disk %s at any time, at its next reboot at the latest; detach the volume, or stop the instance and start it again, then move it",
				in.VolumeName, in.InstanceName, in.Device)
		}
	}
	return nil
}
