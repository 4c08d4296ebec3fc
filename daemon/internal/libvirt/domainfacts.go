// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

func domainID(dom golibvirt.Domain) string { return uuid.UUID(dom.UUID).String() }

type domainFacts struct {
	dom         golibvirt.Domain
	state       golibvirt.DomainState
	reason      int32
	persistent  bool
	autostart   bool
	managedSave bool
	occupied    bool
	snapshots   int
	checkpoints int
	xml         string // of the process, or of the definition if there is none
	configXML   string // of the definition, empty if transient
}

func gather(lv *golibvirt.Libvirt, dom golibvirt.Domain) (*domainFacts, error) {
	f := &domainFacts{dom: dom}
	// First: a call that occupies the domain may change the values below.
	err := f.gatherOccupied(lv)
	if err != nil {
		return nil, err
	}
	if f.xml, err = lv.DomainGetXMLDesc(dom, 0); err != nil {
		return nil, fmt.Errorf("get XML: %w", err)
	}
	if err := f.gatherState(lv); err != nil {
		return nil, err
	}
	persistent, err := lv.DomainIsPersistent(dom)
	if err != nil {
		return nil, fmt.Errorf("get persistence: %w", err)
	}
	if persistent == 0 {
		// Autostart and saved images belong to definitions.
		return f, f.gatherSnapshots(lv)
	}
	f.persistent = true
	if f.configXML, err = lv.DomainGetXMLDesc(dom, golibvirt.DomainXMLInactive); err != nil {
		return nil, fmt.Errorf("get inactive XML: %w", err)
	}
	autostart, err := lv.DomainGetAutostart(dom)
	if err != nil {
		return nil, fmt.Errorf("get autostart: %w", err)
	}
	saved, err := lv.DomainHasManagedSaveImage(dom, 0)
	if err != nil {
		return nil, fmt.Errorf("get managed save: %w", err)
	}
	f.autostart, f.managedSave = autostart != 0, saved != 0
	return f, f.gatherSnapshots(lv)
}

func (f *domainFacts) gatherOccupied(lv *golibvirt.Libvirt) error {
	control, _, _, err := lv.DomainGetControlInfo(f.dom, 0)
	if err != nil && !said(err, golibvirt.ErrOperationInvalid) { // the domain is off
		return fmt.Errorf("get control state: %w", err)
	}
	at := golibvirt.DomainControlState(control)
	f.occupied = err == nil && (at == golibvirt.DomainControlJob || at == golibvirt.DomainControlOccupied)
	return nil
}

func (f *domainFacts) gatherState(lv *golibvirt.Libvirt) error {
	state, reason, err := lv.DomainGetState(f.dom, 0)
	if err != nil {
		return fmt.Errorf("get state: %w", err)
	}
	f.state, f.reason = golibvirt.DomainState(state), reason
	f.occupied = f.occupied || isStarting(f.state, reason)
	return f.gatherRestored(lv)
}

// gatherRestored detects a domain that was restored paused, and stays paused until a Resume:
// libvirt gives a migration as the reason, but has no job that would end the pause.
func (f *domainFacts) gatherRestored(lv *golibvirt.Libvirt) error {
	if f.state != golibvirt.DomainPaused || golibvirt.DomainPausedReason(f.reason) != golibvirt.DomainPausedMigration {
		return nil
	}
	job, _, err := lv.DomainGetJobStats(f.dom, 0)
	if said(err, golibvirt.ErrOperationInvalid) { // the domain comes from another host
		return nil
	}
	if err != nil {
		return fmt.Errorf("get job: %w", err)
	}
	if golibvirt.DomainJobType(job) == golibvirt.DomainJobNone {
		f.reason = int32(golibvirt.DomainPausedUser)
	}
	return nil
}

func (f *domainFacts) gatherSnapshots(lv *golibvirt.Libvirt) error {
	n, err := lv.DomainSnapshotNum(f.dom, 0)
	if err != nil {
		return fmt.Errorf("count snapshots: %w", err)
	}
	f.snapshots = int(n)
	// With 0 for NeedResults the answer is the number alone.
	_, n, err = lv.DomainListAllCheckpoints(f.dom, 0, 0)
	if err != nil {
		return fmt.Errorf("count checkpoints: %w", err)
	}
	f.checkpoints = int(n)
	return nil
}

// domain translates the facts. consistent is false if the domain started or stopped while they
// were gathered.
func (f *domainFacts) domain(known domainxml.PoolSources, clusters rbd.Clusters) (d *hv.Domain, consistent bool, err error) {
	current, err := domainxml.ParseDomain(f.xml, known, clusters)
	if err != nil {
		return nil, false, err
	}
	d = &hv.Domain{
		ID:          domainID(f.dom),
		Name:        current.Name, // the handle may have no name
		Persistent:  f.persistent,
		Autostart:   f.autostart,
		ManagedSave: f.managedSave,
		Snapshots:   f.snapshots,
		Checkpoints: f.checkpoints,
		MemoryBytes: current.Memory, IOThreads: current.IOThreads,
	}
	d.State, d.PauseReason = stateOf(f.state, f.reason)
	d.Moved = movedAway(f.state, f.reason)
	// Only the XML of a running process has an id.
	if current.Active != d.State.Active() {
		return nil, false, nil
	}
	if current.Active {
		d.Live, d.Run, d.Occupied = current.Disks, current.Run, f.occupied
		d.Booted = isBooted(f.state, f.reason)
	}
	if f.persistent {
		config, err := domainxml.ParseDomain(f.configXML, known, clusters)
		if err != nil {
			return nil, false, err
		}
		d.Config = config.Disks
	}
	return d, true, nil
}

func stateOf(state golibvirt.DomainState, reason int32) (hv.State, hv.PauseReason) {
	switch state {
	case golibvirt.DomainRunning, golibvirt.DomainBlocked:
		return hv.StateRunning, ""
	case golibvirt.DomainShutoff:
		return hv.StateStopped, ""
	case golibvirt.DomainPaused:
		return pausedState(golibvirt.DomainPausedReason(reason))
	case golibvirt.DomainPmsuspended:
		return hv.StateOther, hv.PauseAsleep
	case golibvirt.DomainCrashed:
		return hv.StateOther, hv.PauseCrashed
	case golibvirt.DomainNostate, golibvirt.DomainShutdown:
	}
	return hv.StateOther, ""
}

// isStarting reports whether a domain's process exists and its start is not finished. If libvirtd
// died during the start, the next libvirtd connects to the process and ends it.
func isStarting(state golibvirt.DomainState, reason int32) bool {
	return state == golibvirt.DomainPaused && golibvirt.DomainPausedReason(reason) == golibvirt.DomainPausedStartingUp
}

// isBooted reports whether a running domain was started by a boot, and not by a restore, a resume
// or a revert.
func isBooted(state golibvirt.DomainState, reason int32) bool {
	return state == golibvirt.DomainRunning && golibvirt.DomainRunningReason(reason) == golibvirt.DomainRunningBooted
}

func movedAway(state golibvirt.DomainState, reason int32) bool {
	return state == golibvirt.DomainShutoff && golibvirt.DomainShutoffReason(reason) == golibvirt.DomainShutoffMigrated
}

// pausedState distinguishes a domain that waits for a Resume from a domain that libvirt paused for
// its own operation.
func pausedState(reason golibvirt.DomainPausedReason) (hv.State, hv.PauseReason) {
	switch reason {
	case golibvirt.DomainPausedUser:
		return hv.StatePaused, hv.PauseUser
	case golibvirt.DomainPausedIoerror:
		return hv.StatePaused, hv.PauseIOError
	case golibvirt.DomainPausedCrashed:
		return hv.StateOther, hv.PauseCrashed
	case golibvirt.DomainPausedMigration, golibvirt.DomainPausedSave, golibvirt.DomainPausedDump,
		golibvirt.DomainPausedShuttingDown, golibvirt.DomainPausedSnapshot,
		golibvirt.DomainPausedStartingUp, golibvirt.DomainPausedPostcopy, golibvirt.DomainPausedPostcopyFailed:
		return hv.StateOther, ""
	case golibvirt.DomainPausedUnknown, golibvirt.DomainPausedWatchdog, golibvirt.DomainPausedFromSnapshot,
		golibvirt.DomainPausedAPIError:
	}
	return hv.StatePaused, hv.PauseOther
}
