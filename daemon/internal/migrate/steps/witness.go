// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// openImages are the images of a migration that the guest's process has open, by the kernel, or by
// QEMU for images at addresses: the second witness. The first is libvirt.
type openImages struct {
	process           bool // there is one
	src, overlay, dst bool
	srcWritable       bool
	// unasked: QEMU could not be asked for its images at addresses. They count as open for writing.
	unasked bool
	pid     int // of the process, if it has one of the images open
}

// openImages asks the second witness which images the guest's process has open. Its errors are
// typed for the runner.
func (e *Env) openImages(ctx context.Context, s *Spec) (*openImages, error) {
	paths := []string{s.Src.Path, s.Dst.Path}
	if s.Overlay != "" {
		paths = append(paths, s.Overlay)
	}
	held, err := witness.LookAt(ctx, e.hv, s.InstanceID, s.InstanceName, paths...)
	if err != nil {
		return nil, err
	}
	open := &openImages{process: true, src: held[0].Open, srcWritable: held[0].Writable, dst: held[1].Open}
	if s.Overlay != "" {
		open.overlay = held[2].Open
	}
	for _, is := range held {
		if !is.Process {
			return &openImages{}, nil
		}
		open.pid, open.unasked = max(open.pid, is.PID), open.unasked || is.Unasked
	}
	return open, nil
}

// position returns the position of the disk in the process, or Foreign if the open images do not
// show it. A job into dst has dst open although the guest is not on it. After the pivot QEMU has
// the old images open until libvirt has it close them.
func (o *openImages) position(s *Spec) Position {
	switch {
	case s.Background() && o.dst && !o.overlay:
		return OnDst // the overlay is closed first; a definition that still names it must not stay
	case o.dst && (o.overlay || o.src):
		return Foreign
	case o.overlay:
		return OnOverlay
	case o.src:
		return OnSrc
	case o.dst:
		return OnDst
	}
	return Foreign
}

// mayBeCommitted reports whether a commit of the overlay into src may run, or may have been pivoted
// without libvirt having had QEMU close the overlay.
func (o *openImages) mayBeCommitted() bool { return o.overlay && o.srcWritable }

// oneSided returns in words where else than on the overlay the disk may be, after the pivot of a
// background job; "" if both images have all writes.
func (o *openImages) oneSided(s *Spec) string {
	switch {
	case o.mayBeCommitted():
		return "source"
	case s.Background() && o.overlay && o.dst:
		return "destination"
	}
	return ""
}

func (o *openImages) String() string {
	var open []string
	for _, image := range []struct {
		what string
		is   bool
	}{{"src (for writing)", o.srcWritable}, {"src", o.src && !o.srcWritable}, {"the overlay", o.overlay}, {"dst", o.dst}} {
		if image.is {
			open = append(open, image.what)
		}
	}
	switch {
	case !o.process:
		return "no process of it is there"
	case o.unasked:
		return "its process is there, and nobody can ask it what it has open"
	case len(open) == 0:
		return "its process has neither src nor dst nor an overlay open"
	}
	return "its process has " + strings.Join(open, " and ") + " open"
}

// agrees reports whether libvirt and the kernel can both be right. A foreign chain always agrees. A
// job that is ending does not: its call is under way, or a libvirtd that died no longer learns of
// its end.
func (o *openImages) agrees(s *Spec, disk *diskState) bool {
	switch {
	case !disk.active:
		return !o.src && !o.overlay && !o.dst
	case disk.live == Foreign:
		return true
	case disk.mirror != nil && disk.mirror.Ending:
		return false
	case !o.process, o.overlay != (disk.live == OnOverlay && s.Overlay != ""):
		return false
	}
	if disk.live == OnDst {
		return o.dst && !o.src
	}
	return o.src && (disk.mirror != nil || !o.dst) // otherwise a job that libvirt does not know writes to dst
}

// errWitnessesDisagree reports that libvirt and the kernel contradict each other about a disk.
// Nothing may be undone, deleted or released on the report of only one of them.
type errWitnessesDisagree struct {
	why *api.Error
	// at is the position of the disk in the process, config its position at the next start.
	at, config Position
	state      hv.State // as libvirt reports it
	// oneSided: the disk may be at the end of the job, or still on the overlay, and only one of
	// them gets the guest's writes from now on.
	oneSided bool
}

func (disagreed *errWitnessesDisagree) Error() string { return disagreed.why.Message }
func (disagreed *errWitnessesDisagree) Unwrap() error { return disagreed.why }

// agreement is how long the witnesses are asked until they agree, agreementInPause while a guest is
// paused for that.
var (
	agreement        = witness.Retry{Poll: 20 * time.Millisecond, Bound: 10 * time.Second}
	agreementInPause = witness.Retry{Poll: 20 * time.Millisecond, Bound: 3 * time.Second}
)

// confirmDisk is readDisk, confirmed by the second witness. Its errors are typed for the runner.
func (e *Env) confirmDisk(ctx context.Context, s *Spec) (*diskState, error) {
	return e.confirmDiskWithin(ctx, s, agreement)
}

// confirmDiskOfPaused is confirmDisk for a guest that may be paused meanwhile: it asks for a
// shorter time, if the guest is resumed after a disagreement.
func (e *Env) confirmDiskOfPaused(ctx context.Context, s *Spec) (*diskState, error) {
	disk, err := e.confirmDiskWithin(ctx, s, agreementInPause)
	var disagreed *errWitnessesDisagree
	if errors.As(err, &disagreed) && (disagreed.oneSided || disagreed.state != hv.StatePaused) { // a process that ends may take longer
		return e.confirmDisk(ctx, s)
	}
	return disk, err
}

func (e *Env) confirmDiskWithin(ctx context.Context, s *Spec, bound witness.Retry) (*diskState, error) {
	return witness.Agreed(ctx, bound, s.InstanceName, func(ctx context.Context) (heard witness.Heard[*diskState], err error) {
		if heard.View, err = e.readDisk(ctx, s); err != nil {
			return heard, err
		}
		// An observation during a call does not count, and QEMU would answer only after the call.
		if heard.Occupied = heard.View.dom.Occupied; heard.Occupied {
			return heard, nil
		}
		open, err := e.openImages(ctx, s)
		if err != nil {
			return heard, err
		}
		if !open.agrees(s, heard.View) {
			heard.Disagree = disagreement(s, heard.View, open)
		}
		return heard, nil
	})
}

func disagreement(s *Spec, disk *diskState, open *openImages) *errWitnessesDisagree {
	return &errWitnessesDisagree{disagree(s, disk, open), open.position(s), disk.config, disk.dom.State, open.oneSided(s) != ""}
}

func disagree(s *Spec, disk *diskState, open *openImages) *api.Error {
	if !disk.active {
		return lost(s, open)
	}
	is := "with disk " + s.Target + " on " + s.place(disk.live)
	if disk.mirror != nil && disk.mirror.Ending {
		is = "with the end of the job on disk " + s.Target + " under way"
	}
	end := "shutdown"
	if disk.dom.State == hv.StatePaused { // which obeys no shutdown
		end = "destroy"
	}
	commands := []string{api.ShellLine("virsh", end, "--", s.InstanceName), api.ShellLine("virsh", "start", "--", s.InstanceName)}
	again, but := "shut it down, start it again, and call complete or cancel", ""
	if end := open.oneSided(s); end != "" {
		commands, again = commands[:1], "shut it down, do not start it, and call complete or cancel"
		but = fmt.Sprintf(". It may be on the %s or on the overlay, which are equal only until it writes: the call compares them where it may have written", end)
		if disk.dom.State == hv.StatePaused {
			but = fmt.Sprintf(". It stands still and must not be resumed: it may be on the %s or on the overlay, which are equal only until it writes, so end it with 'virsh destroy'", end)
		}
	}
	return cured(api.Errorf(api.CodeChainChanged,
		"libvirt has instance %s %s, and by the kernel's word %s: libvirtd has probably died inside a call, and does not look again. Nothing was undone, deleted or released. "+
			"Do not save, suspend to disk or live-migrate the instance, which would go on with libvirt's chain: %s of migration %s once more (docs/how-to/recover.md)%s",
		s.InstanceName, is, open, again, s.MigrationID, but), commands...)
}

// lost returns the error for a guest that libvirt shows as stopped although its process runs. A
// libvirtd that dies while it handles the end of a job leaves a status that it cannot read later.
func lost(s *Spec, open *openImages) *api.Error {
	return cured(api.Errorf(api.CodeChainChanged,
		"libvirt has instance %s as stopped, and by the kernel's word %s: libvirtd has probably died inside a call, and has lost the guest, which virsh can neither shut down nor destroy any more. "+
			"Nothing was undone, deleted or released. Do not start the instance while process %d goes on: end that as docs/how-to/recover.md says (A guest that libvirt has lost), "+
			"and call complete or cancel of migration %s once more",
		s.InstanceName, open, open.pid, s.MigrationID), killCommand(s, open.pid))
}

// unknownCommit returns an error if QEMU may run a commit into src that libvirt does not know: QEMU
// refuses another commit, and has src open for writing.
func (e *Env) unknownCommit(ctx context.Context, s *Spec) error {
	disk, err := e.readDisk(ctx, s)
	if err != nil || !disk.maybeUnderCommit() {
		return err
	}
	open, err := e.openImages(ctx, s)
	if err != nil || !open.srcWritable {
		return err
	}
	return op.UnknownOutcome(disagreement(s, disk, open))
}

// maybeUnderCommit reports whether libvirt has the disk on the overlay without a job. A commit that
// libvirt does not know may run there.
func (d *diskState) maybeUnderCommit() bool {
	return d.active && d.live == OnOverlay && d.mirror == nil
}

// notOpen makes sure, before an image is deleted, that no process of a domain of this host has it
// open, whatever libvirt reports about the domain.
func (e *Env) notOpen(ctx context.Context, doms []hv.Domain, path string) error {
	for i := range doms {
		h, err := witness.Look(ctx, e.hv, doms[i].ID, doms[i].Name, path)
		if err != nil {
			return err
		}
		if h.Open {
			shutdown, start := api.ShellLine("virsh", "shutdown", "--", doms[i].Name), api.ShellLine("virsh", "start", "--", doms[i].Name)
			return op.UnknownOutcome(cured(api.Errorf(api.CodeDstInUse, "%s was to be deleted, but the process of instance %s has it open, of which libvirt knows nothing; nothing was deleted: shut the instance down and start it again (`%s`, `%s`), then call again (docs/how-to/recover.md)",
				path, doms[i].Name, shutdown, start), shutdown, start))
		}
	}
	return nil
}

// mayRelease makes sure that the witnesses agree before the registry learns that the migration is
// over, and gives src, dst or the volume to others.
func (e *Env) mayRelease(ctx context.Context, s *Spec) error {
	if !s.Attached() {
		return nil
	}
	_, err := e.confirmDisk(ctx, s)
	if !errors.Is(err, hv.ErrNotFound) {
		return err
	}
	// It was undefined: only its process shows which images it has open.
	open, err := e.openImages(ctx, s)
	if err != nil {
		return err
	}
	if none := (openImages{}); *open != none {
		end := killCommand(s, open.pid)
		return op.UnknownOutcome(cured(api.Errorf(api.CodeChainChanged,
			"instance %s is not defined any more, and %s; nothing was released: look whether process %d is that guest's, end it as docs/how-to/recover.md says (A guest that libvirt has lost: `%s`), and call again",
			s.InstanceName, open, open.pid, end), end))
	}
	return nil
}
