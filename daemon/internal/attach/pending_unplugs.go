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

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// PendingUnplugs has the unplug requests that a guest did not answer in time. Their detaches were
// undone, so the attachments still exist. QEMU keeps such a request: the guest may release the
// disk later, at its next reboot at the latest. It is safe for concurrent use.
type PendingUnplugs struct {
	domains domainReader
	rules   request.Rules
	journal UnplugJournal
	bootID  string

	loading sync.Mutex
	loaded  bool // all has the journal's entries

	mu  sync.Mutex
	all map[string]pendingUnplug // by attachment
}

type pendingUnplug struct {
	input
	asked process
}

type process struct {
	// Boot is the host's boot, because libvirt's counter Run restarts with it.
	Boot string `json:"boot,omitempty"`
	Run  int    `json:"run,omitempty"`
}

// unplugNote is written before the first request: from then on the guest may release the disk at
// any time. Gone is written once the guest was seen without the disk: a later save image of the
// guest lacks the disk.
type unplugNote struct {
	Asked process `json:"process,omitzero"`
	Gone  bool    `json:"gone,omitempty"`
}

// NewPendingUnplugs returns this host's pending unplugs, which it reads from the journal at the
// first use. bootID identifies this boot of the host.
func NewPendingUnplugs(domains domainReader, rules request.Rules, journal UnplugJournal, bootID string) *PendingUnplugs {
	return &PendingUnplugs{domains: domains, rules: rules, journal: journal, bootID: bootID, all: map[string]pendingUnplug{}}
}

func (p *PendingUnplugs) processOf(v *view) process { return process{Boot: p.bootID, Run: v.dom.Run} }

func (p *PendingUnplugs) add(in *input, asked process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked = cmp.Or(asked, p.all[in.AttachmentID].asked)
	p.all[in.AttachmentID] = pendingUnplug{*in, asked}
}

// unplugOverPrefix begins the journal keys of ended unplugs; an attachment's id follows. The data
// is the process that was asked.
const unplugOverPrefix = "unplug_over/"

// isOver reports whether a new process has booted the guest, which ends the unplug request. A
// process from a save image keeps the request.
func (p *PendingUnplugs) isOver(in *pendingUnplug, v *view) bool {
	return v.active && v.dom.Booted && in.asked != p.processOf(v)
}

// end removes an ended unplug, and stores the end in the journal: after a later pause libvirt does
// not show that the guest was booted.
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

// load reads the pending unplugs of earlier daemons from the journal, once. It reads every detach:
// the last one may not have asked the guest.
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
			delete(found, o.Group) // the guest has released the disk
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

type detachEnd int

const (
	detachHasNotAsked detachEnd = iota // or the detach is at work
	detachGivenUp
	detachDone
)

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

// MayMove refuses to move a volume with a pending unplug, until the guest is started again: QEMU
// could remove the disk, with its overlay or its block job.
func (p *PendingUnplugs) MayMove(ctx context.Context, volumeID string) error {
	in, pending, err := p.find(ctx, func(in *input) bool { return in.VolumeID == volumeID })
	if err != nil || !pending {
		return err
	}
	return api.Errorf(api.CodeInstanceBusy,
		"cannot move volume %s: a detach was given up because instance %s did not answer, and it may still let go of disk %s at any time, at its next reboot at the latest; detach the volume, or stop the instance and start it again, then move it",
		in.VolumeName, in.InstanceName, in.Device)
}

// MayOverlay refuses to put an overlay over a volume while its instance has a pending unplug of
// another volume, if libvirt would then make rules that prevent a cancel of the move
// (request.OneMoveAtATime).
func (p *PendingUnplugs) MayOverlay(ctx context.Context, instanceID, volumeName string) error {
	in, pending, err := p.find(ctx, func(in *input) bool { return in.InstanceID == instanceID })
	if err != nil || !pending {
		return err
	}
	if denies, err := request.DeniesBelow(ctx, p.rules, instanceID); err != nil || !denies {
		return err
	}
	return api.Errorf(api.CodeInstanceBusy,
		"cannot migrate volume %s: AppArmor confines instance %[2]s, which did not answer a detach of its volume %[3]s, and may still release disk %[4]s at any time; with libvirt before 12.1.0 that would prevent a cancel of the migration; detach volume %[3]s, or stop the instance and start it again, then move it",
		volumeName, in.InstanceName, in.VolumeName, in.Device).With("attachment_id", in.AttachmentID)
}

// find returns a pending unplug that its guest may still execute.
func (p *PendingUnplugs) find(ctx context.Context, wanted func(*input) bool) (in input, pending bool, err error) {
	if err := p.load(ctx); err != nil {
		return in, false, api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
	}
	for _, in := range p.list() {
		if in.asked == (process{}) || !wanted(&in.input) {
			continue
		}
		v, err := look(ctx, p.domains, &in.input)
		if err != nil {
			return in.input, false, api.Errorf(api.CodeHypervisorUnavailable, "cannot look at instance %s: %v", in.InstanceName, err)
		}
		if v.saved || v.active && !p.isOver(&in, v) {
			return in.input, true, nil
		}
	}
	return in, false, nil
}
