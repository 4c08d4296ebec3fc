// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// OpenImages has the images of a migration that the guest's process has open, as the kernel shows
// or, for NBD and RBD images, QEMU.
type OpenImages struct {
	process           bool // it exists
	Src, Overlay, Dst bool
	SrcWritable       bool
	// unasked: QEMU could not be asked about NBD and RBD images, which count as open for writing.
	unasked bool
	pid     int // of the process, if it has one of the images open
}

// OpenImages asks the kernel and QEMU which images the guest's process has open, with errors typed
// for the runner.
func (e *Env) OpenImages(ctx context.Context, s *move.Spec) (*OpenImages, error) {
	paths := []string{s.Src.Path, s.Dst.Path}
	if s.Overlay != "" {
		paths = append(paths, s.Overlay)
	}
	held, err := witness.LookAt(ctx, e.processes, s.InstanceID, s.InstanceName, paths...)
	if err != nil {
		return nil, err
	}
	open := &OpenImages{process: true, Src: held[0].Open, SrcWritable: held[0].Writable, Dst: held[1].Open}
	if s.Overlay != "" {
		open.Overlay = held[2].Open
	}
	for _, is := range held {
		if !is.Process {
			return &OpenImages{}, nil
		}
		open.pid, open.unasked = max(open.pid, is.PID), open.unasked || is.Unasked
	}
	return open, nil
}

// Position returns the chain that the guest's process has for the disk, or Foreign if the open
// images do not show it. QEMU has dst open during a job into dst, although the guest is not on
// dst. After the pivot it has the old images open until libvirt makes it close them.
func (o *OpenImages) Position(s *move.Spec) move.Position {
	switch {
	case s.Background() && o.Dst && !o.Overlay:
		return move.OnDst // QEMU closes the overlay first; a definition that still names it must not stay
	case o.Dst && (o.Overlay || o.Src):
		return move.Foreign
	case o.Overlay:
		return move.OnOverlay
	case o.Src:
		return move.OnSrc
	case o.Dst:
		return move.OnDst
	}
	return move.Foreign
}

// mayBeCommitted reports whether a commit of the overlay into src may run, or may have been
// pivoted while QEMU still has the overlay open.
func (o *OpenImages) mayBeCommitted() bool { return o.Overlay && o.SrcWritable }

// oneSided names the image (source or destination) that the guest may be on instead of the
// overlay, while only one of the two gets its writes. Otherwise it returns "".
func (o *OpenImages) oneSided(s *move.Spec) string {
	switch {
	case o.mayBeCommitted():
		return "source"
	case s.Background() && o.Overlay && o.Dst:
		return "destination"
	}
	return ""
}

func (o *OpenImages) String() string {
	var open []string
	for _, image := range []struct {
		what string
		is   bool
	}{{"src (for writing)", o.SrcWritable}, {"src", o.Src && !o.SrcWritable}, {"the overlay", o.Overlay}, {"dst", o.Dst}} {
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

// Agrees reports whether libvirt and the open images can both be right about the disk. A chain
// that another program has changed always agrees. A block job that is ending never agrees:
// libvirt's call is under way, or libvirtd died and does not notice the end.
func (o *OpenImages) Agrees(s *move.Spec, disk *move.DiskState) bool {
	switch {
	case !disk.Active:
		return !o.Src && !o.Overlay && !o.Dst
	case disk.Live == move.Foreign:
		return true
	case disk.Mirror != nil && disk.Mirror.Ending:
		return false
	case !o.process, o.Overlay != (disk.Live == move.OnOverlay && s.Overlay != ""):
		return false
	}
	if disk.Live == move.OnDst {
		return o.Dst && !o.Src
	}
	return o.Src && (disk.Mirror != nil || !o.Dst) // otherwise a job that libvirt does not know writes to dst
}

// WitnessesDisagreeError reports that libvirt and the kernel contradict each other about a disk.
// While only one of them reports a state, nothing may be undone, deleted or released because of
// it.
type WitnessesDisagreeError struct {
	Why *api.Error
	// At is the position of the disk in the process, Config its position at the next start.
	At, Config move.Position
	state      hv.State // as libvirt reports it
	// OneSided: the disk may be on the image of the job, or still on the overlay, and only one of
	// them gets the guest's new writes.
	OneSided bool
}

func (disagreed *WitnessesDisagreeError) Error() string { return disagreed.Why.Message }
func (disagreed *WitnessesDisagreeError) Unwrap() error { return disagreed.Why }

// Agreement is how long libvirt and the kernel are asked until they agree about the guest's
// images; agreementInPause is for a guest that is paused meanwhile.
var (
	Agreement        = witness.Retry{Poll: 20 * time.Millisecond, Bound: 10 * time.Second}
	agreementInPause = witness.Retry{Poll: 20 * time.Millisecond, Bound: 3 * time.Second}
)

// ConfirmDisk is ReadDisk, but returns an error if the open images of the guest's process
// contradict libvirt's view. Errors are typed for the runner.
func (e *Env) ConfirmDisk(ctx context.Context, s *move.Spec) (*move.DiskState, error) {
	return e.confirmDiskWithin(ctx, s, Agreement)
}

// ConfirmDiskOfPaused is ConfirmDisk for a guest that may be paused meanwhile. It gives up sooner
// if the paused guest can be resumed after a disagreement.
func (e *Env) ConfirmDiskOfPaused(ctx context.Context, s *move.Spec) (*move.DiskState, error) {
	disk, err := e.confirmDiskWithin(ctx, s, agreementInPause)
	var disagreed *WitnessesDisagreeError
	if errors.As(err, &disagreed) && (disagreed.OneSided || disagreed.state != hv.StatePaused) { // a process that ends may take longer
		return e.ConfirmDisk(ctx, s)
	}
	return disk, err
}

func (e *Env) confirmDiskWithin(ctx context.Context, s *move.Spec, bound witness.Retry) (*move.DiskState, error) {
	return witness.Agreed(ctx, bound, s.InstanceName, func(ctx context.Context) (heard witness.Heard[*move.DiskState], err error) {
		if heard.View, err = e.move.ReadDisk(ctx, s); err != nil {
			return heard, err
		}
		// An observation during a call does not count, and QEMU answers only after the call.
		if heard.Occupied = heard.View.Dom.Occupied; heard.Occupied {
			return heard, nil
		}
		open, err := e.OpenImages(ctx, s)
		if err != nil {
			return heard, err
		}
		if !open.Agrees(s, heard.View) {
			heard.Disagree = Disagreement(s, heard.View, open)
		}
		return heard, nil
	})
}

// Disagreement returns the error for a guest with different images in libvirt and in the kernel.
func Disagreement(s *move.Spec, disk *move.DiskState, open *OpenImages) *WitnessesDisagreeError {
	return &WitnessesDisagreeError{disagree(s, disk, open), open.Position(s), disk.Config, disk.Dom.State, open.oneSided(s) != ""}
}

func disagree(s *move.Spec, disk *move.DiskState, open *OpenImages) *api.Error {
	if !disk.Active {
		return lost(s, open)
	}
	is := "with disk " + s.Target + " on " + s.Place(disk.Live)
	if disk.Mirror != nil && disk.Mirror.Ending {
		is = "with the end of the job on disk " + s.Target + " under way"
	}
	end := "shutdown"
	if disk.Dom.State == hv.StatePaused { // which obeys no shutdown
		end = "destroy"
	}
	commands := []string{shell.Line("virsh", end, "--", s.InstanceName), shell.Line("virsh", "start", "--", s.InstanceName)}
	again, but := "shut it down, start it again, and call complete or cancel", ""
	if end := open.oneSided(s); end != "" {
		commands, again = commands[:1], "shut it down, do not start it, and call complete or cancel"
		but = fmt.Sprintf(". It may be on the %s or on the overlay, which are equal only until it writes: the call compares them where it may have written", end)
		if disk.Dom.State == hv.StatePaused {
			but = fmt.Sprintf(". It stands still and must not be resumed: it may be on the %s or on the overlay, which are equal only until it writes, so end it with 'virsh destroy'", end)
		}
	}
	return move.Cured(api.Errorf(api.CodeChainChanged,
		"libvirt has instance %s %s, and by the kernel's word %s: libvirtd has probably died inside a call, and does not look again. Nothing was undone, deleted or released. "+
			"Do not save, suspend to disk or live-migrate the instance, which would go on with libvirt's chain: %s of migration %s once more (docs/how-to/recover.md)%s",
		s.InstanceName, is, open, again, s.MigrationID, but), commands...)
}

// lost returns the error for a guest that libvirt shows as stopped although its process runs: a
// libvirtd that dies while it handles the end of a job leaves a status that it cannot read later.
func lost(s *move.Spec, open *OpenImages) *api.Error {
	return move.Cured(api.Errorf(api.CodeChainChanged,
		"libvirt has instance %s as stopped, and by the kernel's word %s: libvirtd has probably died inside a call, and has lost the guest, which virsh can neither shut down nor destroy any more. "+
			"Nothing was undone, deleted or released. Do not start the instance while process %d goes on: end that as docs/how-to/recover.md says (A guest that libvirt has lost), "+
			"and call complete or cancel of migration %s once more",
		s.InstanceName, open, open.pid, s.MigrationID), move.KillCommand(s, open.pid))
}

// UnknownCommit returns an error if QEMU may run a commit into src that libvirt does not know:
// QEMU has src open for writing, and libvirt has no job.
func (e *Env) UnknownCommit(ctx context.Context, s *move.Spec) error {
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil || !MaybeUnderCommit(disk) {
		return err
	}
	open, err := e.OpenImages(ctx, s)
	if err != nil || !open.SrcWritable {
		return err
	}
	return op.UnknownOutcome(Disagreement(s, disk, open))
}

// MaybeUnderCommit reports whether libvirt has the disk on the overlay without a job. A commit
// unknown to libvirt may run there.
func MaybeUnderCommit(d *move.DiskState) bool {
	return d.Active && d.Live == move.OnOverlay && d.Mirror == nil
}

// notOpen makes sure, before an image is deleted, that no process of a domain of this host has it
// open, whatever libvirt reports.
func (e *Env) notOpen(ctx context.Context, doms []hv.Domain, path string) error {
	for i := range doms {
		h, err := witness.Look(ctx, e.processes, doms[i].ID, doms[i].Name, path)
		if err != nil {
			return err
		}
		if h.Open {
			shutdown, start := shell.Line("virsh", "shutdown", "--", doms[i].Name), shell.Line("virsh", "start", "--", doms[i].Name)
			return op.UnknownOutcome(move.Cured(api.Errorf(api.CodeDstInUse, "%s was to be deleted, but the process of instance %s has it open, of which libvirt knows nothing; nothing was deleted: shut the instance down and start it again (`%s`, `%s`), then call again (docs/how-to/recover.md)",
				path, doms[i].Name, shutdown, start), shutdown, start))
		}
	}
	return nil
}

// MayRelease makes sure that libvirt and the kernel agree about the guest's images, before the
// registry ends the migration, and other requests may use src, dst or the volume.
func (e *Env) MayRelease(ctx context.Context, s *move.Spec) error {
	if !s.Attached() {
		return nil
	}
	_, err := e.ConfirmDisk(ctx, s)
	if !errors.Is(err, hv.ErrNotFound) {
		return err
	}
	// It was undefined: only its process shows its open images.
	open, err := e.OpenImages(ctx, s)
	if err != nil {
		return err
	}
	if none := (OpenImages{}); *open != none {
		end := move.KillCommand(s, open.pid)
		return op.UnknownOutcome(move.Cured(api.Errorf(api.CodeChainChanged,
			"instance %s is not defined any more, and %s; nothing was released: look whether process %d is that guest's, end it as docs/how-to/recover.md says (A guest that libvirt has lost: `%s`), and call again",
			s.InstanceName, open, open.pid, end), end))
	}
	return nil
}
