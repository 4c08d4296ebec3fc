// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// snapshotsLost returns the error for an instance that has snapshots or checkpoints in the overlay,
// which would be lost with it.
func snapshotsLost(s *Spec, dom *hv.Domain) *api.Error {
	return api.Errorf(api.CodeStateForbidden,
		"instance %s has %s and %s in libvirt, made since the migration of volume %s began, and would lose them; delete them first",
		dom.Name, api.Count(dom.Snapshots, "snapshot"), api.Count(dom.Checkpoints, "checkpoint"), s.VolumeName)
}

// atRest refuses an instance that is off and may come back with other disks than its definition
// names: its guest was moved to another host, or a managed save image has the disks from the time
// of the save.
func atRest(s *Spec, disk *diskState) error {
	if disk.active || !disk.dom.ManagedSave {
		return request.AtHome("cannot go on with the migration of volume "+s.VolumeName, disk.dom)
	}
	return api.Errorf(api.CodeStateForbidden,
		"instance %s has a managed save image, which would start it with its old disks; start it or remove the image (`%s`)",
		s.InstanceName, api.ShellLine("virsh", "managedsave-remove", "--", s.InstanceName))
}

func chainChanged(s *Spec, disk *diskState) *api.Error {
	if disk.active && !disk.dom.Persistent {
		return cured(api.Errorf(api.CodeChainChanged,
			"instance %s has no definition any more: somebody has undefined it while it runs, and it would be gone once it is off; the guest still runs with disk %s on %s; "+
				"define it again as it runs (`%s`, `%s`), then call again; `%s` shows what is known",
			s.InstanceName, s.Target, s.place(disk.live), s.dumpCommand(), s.defineCommand(), s.whichCommand()),
			s.dumpCommand(), s.defineCommand())
	}
	where := "the definition names " + s.place(disk.config)
	switch gone := disk.dom.ConfigDisk(s.Target) == nil; {
	case gone && disk.active:
		where = fmt.Sprintf("the definition has no such disk; define it again as it runs (`%s`, `%s`)", s.dumpCommand(), s.defineCommand())
	case gone:
		where = fmt.Sprintf("the definition has no such disk; define it again, with a copy of it as %s, whatever image that names (`%s`, `%s`)",
			s.definitionFile(), s.defineCommand(), s.repairCommand())
	}
	if disk.active {
		where = "the guest runs on " + s.place(disk.live) + ", and " + where
	}
	if advice := snapshotAdvice(s, disk); advice != "" {
		where += "; " + advice + ", and call again (docs/how-to/recover.md, " + snapshotSection + ")"
	}
	return cured(api.Errorf(api.CodeChainChanged,
		"disk %s of instance %s was changed by somebody else: %s; `%s` shows what is known",
		s.Target, s.InstanceName, where, s.whichCommand()), mend(s, disk)...)
}

// mend returns the commands, in order, that undo another program's change of the disk while an op
// waits for the operator, nil if they are unknown.
func mend(s *Spec, disk *diskState) []string {
	fold := foldCommands(s, disk)
	switch {
	case fold != nil:
		return fold
	case disk.mirror != nil:
		if disk.ours(toDst, s) != nil {
			return nil // this job is not ended while the guest runs (stepAbortMirror)
		}
		return []string{endJobCommand(s)}
	case disk.dom.ConfigDisk(s.Target) == nil && !disk.active:
		return []string{s.defineCommand(), s.repairCommand()}
	case disk.dom.ConfigDisk(s.Target) != nil && (!disk.active || disk.live != Foreign && disk.live != disk.config):
		return []string{s.repairCommand()}
	case disk.active && disk.live != Foreign && disk.live != disk.config:
		return []string{s.dumpCommand(), s.defineCommand()}
	}
	return nil
}

// overlayLeft returns the error for a disk that is on the overlay, or would be after the next
// start, in an op that brings it back to src: a guest was started there, and the overlay may have
// newer writes.
func overlayLeft(s *Spec, disk *diskState) *api.Error {
	commands := commitCommands(s, s.Src.Path, disk.dom.State != hv.StatePaused)
	where := "runs on"
	if !disk.active {
		where = "starts on"
		commands = append([]string{api.ShellLine("virsh", "start", "--", s.InstanceName)}, commands...)
	}
	return cured(api.Errorf(api.CodeChainChanged,
		"instance %s is to be back on %s, and it %s %s, which may have writes that the source lacks; commit it to the source under the guest (%s), and call again; `%s` shows what is known",
		s.InstanceName, s.place(OnSrc), where, s.place(OnOverlay), quoted(commands), s.whichCommand()), commands...)
}

// eitherHasMore returns the error for a guest with a process that ended in its switch. It may have
// written only to the end, if another program resumed it, or only to the overlay, if it was started
// there since.
func eitherHasMore(s *Spec, to direction) *api.Error {
	return api.Errorf(api.CodeChainChanged,
		"instance %s went off while its disk was switched to %s, and that and %s do not read the same, or may not: either may have what the other lacks. Nothing was deleted; with the instance off, look at both, write that which is right over the other as docs/how-to/recover.md says (A guest that was resumed in the switch), and call again; `%s` shows what is known",
		s.InstanceName, to.image(s).Path, s.top(), s.whichCommand())
}

// overlayHasData returns the error for the overlay of an undone start that has data (why is nil),
// or that is another file (why is the reason).
func overlayHasData(s *Spec, why error) *api.Error {
	is := "a guest was started on it and put back since, and its writes are there alone"
	if why != nil {
		is = fmt.Sprintf("it is not the overlay that the start has made: %v", why)
	}
	keep := api.ShellLine("mv", "-n", "--", s.Overlay, s.Overlay+".kept")
	return cured(api.Errorf(api.CodeChainChanged,
		"%s was to be deleted, since the start of its migration is taken back, but %s; nothing was deleted: put the file out of the way (`%s`), and call again; docs/how-to/recover.md (A source that was written) says what can be done with it",
		s.Overlay, is, keep), keep)
}

// snapshotSection is the section of the page Recover about snapshots of other programs.
const snapshotSection = "A snapshot over a disk that moves"

// snapshotAdvice describes how to merge the images over the image that the guest was on, "" if
// there are none.
func snapshotAdvice(s *Spec, disk *diskState) string {
	fold := foldCommands(s, disk)
	if fold == nil {
		return ""
	}
	chain := disk.dom.LiveDisk(s.Target).Chain
	over := s.place(s.positionOn(chain[s.ours(chain)]))
	return fmt.Sprintf("over %s is a snapshot (%s), which has the newest writes: merge it (%s), "+
		"have libvirt forget it if it is listed (`%s`, `%s`)",
		over, chain[0].Path, quoted(fold), api.ShellLine("virsh", "snapshot-list", "--", s.InstanceName), api.ShellLine("virsh", "snapshot-delete", "--metadata", "--", s.InstanceName, "NAME"))
}

// foldCommands returns the commands that fold the images over the image that the guest was on into
// that image, nil if there are none.
func foldCommands(s *Spec, disk *diskState) []string {
	if !disk.active || !s.under(disk.dom.LiveDisk(s.Target)) {
		return nil
	}
	chain := disk.dom.LiveDisk(s.Target).Chain
	return commitCommands(s, chain[s.ours(chain)].Path, disk.dom.State != hv.StatePaused)
}

// under reports whether a disk has an image over an image of the migration. The disk may be nil.
func (s *Spec) under(d *hv.Disk) bool { return d != nil && s.ours(d.Chain) > 0 }

// ours returns the index in a chain of the first image that the migration knows, -1 for none.
func (s *Spec) ours(chain []hv.Image) int {
	return slices.IndexFunc(chain, func(img hv.Image) bool { return s.positionOn(img) != Foreign })
}

func (s *Spec) positionOn(img hv.Image) Position {
	switch img.Path {
	case s.Src.Path:
		return OnSrc
	case s.Dst.Path:
		return OnDst
	case s.Overlay:
		return OnOverlay
	}
	return Foreign
}

// readActive is readDisk for a guest that must have a process.
func (e *Env) readActive(ctx context.Context, s *Spec) (*diskState, error) {
	disk, err := e.readDisk(ctx, s)
	if err != nil {
		return nil, err
	}
	if !disk.active {
		return nil, guestIsOff(s)
	}
	return disk, nil
}

func guestIsOff(s *Spec) error {
	return &errWorldChanged{fmt.Sprintf("instance %s is not running any more", s.InstanceName)}
}

// guestRestarted ends an op if the guest has another process: the jobs of the earlier process are
// gone.
func guestRestarted(s *Spec) error {
	return &errWorldChanged{fmt.Sprintf("instance %s was stopped and started again", s.InstanceName)}
}

// jobEndedEarly ends an op when its block job is gone early, because of an I/O error or a new
// process of the guest. The guest is on its old image.
func jobEndedEarly(s *Spec, into hv.Image) error {
	return &errWorldChanged{jobEnded(s, into, logSaysWhy)}
}

// logSaysWhy is for a job's end with a reason that only QEMU knows.
const logSaysWhy = "its log says why"

func jobEnded(s *Spec, into hv.Image, why string) string {
	from, goesOn := s.Overlay, "its overlay"
	if s.Method == MethodMirror {
		from, goesOn = s.Src.Path, "it"
	}
	return fmt.Sprintf("QEMU ended the copy of %s into %s before it was done (%s); the guest goes on with %s and nothing is lost",
		from, into.Path, why, goesOn)
}

// fullBelow is the free space below which a filesystem counts as full: less than QEMU writes at
// once.
const fullBelow = 1 << 20

// dstIsFull reports whether an image is dst, and its filesystem has no space for more of it.
func (e *Env) dstIsFull(s *Spec, into hv.Image) bool {
	if into.Path != s.Dst.Path || into.Type != hv.SourceFile {
		return false
	}
	free, err := e.images.FreeBytes(filepath.Dir(into.Path))
	return err == nil && free < fullBelow
}

// jobFailed returns the error for a job that ended while it was watched, in this run of the guest.
// A fold is repeated, since it is short. A mirror would meet the same error again after hours, so a
// person must look at it, unless the guest's process is ending: libvirt ends the jobs first. A fold
// into a full dst is not repeated either.
func (e *Env) jobFailed(ctx context.Context, s *Spec, into hv.Image, run int) error {
	if e.dstIsFull(s, into) {
		return e.guestErrorAfter(ctx, s, run, DestroyNotice, api.Errorf(api.CodeNoSpace, "%s. Make room there and complete again, or take the move back",
			jobEnded(s, into, "its filesystem is full")))
	}
	if s.Method == MethodMirror {
		return e.guestErrorAfter(ctx, s, run, DestroyNotice, api.Errorf(api.CodeInternal, "%s", jobEnded(s, into, logSaysWhy)))
	}
	return jobEndedEarly(s, into)
}

func guestIsOn(s *Spec) error {
	return &errWorldChanged{fmt.Sprintf("instance %s was started", s.InstanceName)}
}

// How long libvirt may take to notice that a guest is gone. A call counts as failed for another
// reason only after this time.
const (
	// DeathNotice is for a process that may have died.
	DeathNotice = time.Second
	deathPoll   = 20 * time.Millisecond
	// DestroyNotice is for a process that was told to end: it ends its jobs first, and libvirt
	// kills it if that takes too long (some 15 s). It is also for a process that libvirt has lost
	// (hv.ErrProcessEnds), on a slow host.
	DestroyNotice = 30 * time.Second
)

// guestError is hvError for a call that needs the guest's process. If the process dies, the call
// fails a moment before libvirt reports the guest as off. An op that is undone in that moment could
// find an unknown state, so guestError waits until libvirt notices.
func (e *Env) guestError(ctx context.Context, s *Spec, err error) error {
	return e.guestErrorAfter(ctx, s, 0, DeathNotice, err)
}

// guestErrorAfter is guestError for a call in this run of the guest (0 if unknown): it detects a
// guest that was stopped and started again.
func (e *Env) guestErrorAfter(ctx context.Context, s *Spec, run int, notice time.Duration, err error) error {
	if typed := e.hvError(err); typed != err { //nolint:errorlint // the same error, not a wrapped one
		return typed
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, hv.ErrProcessEnds) {
		notice = max(notice, DestroyNotice)
	}
	_, gone := retry.Poll(ctx, max(deathPoll, notice/100), notice, func() (bool, error) {
		disk, err := e.readDisk(ctx, s)
		switch {
		case err != nil:
			return false, err
		case !disk.active:
			return false, guestIsOff(s)
		case run != 0 && disk.dom.Run != run:
			return false, guestRestarted(s)
		}
		return false, nil
	})
	return cmp.Or(gone, err)
}

// CheckNotSaved refuses the switch of a guest that was saved while its volume was copied. The
// switch is possible once the guest is restored.
func (e *Env) CheckNotSaved(ctx context.Context, s *Spec) error {
	if s.Method != MethodOverlay {
		return nil
	}
	disk, err := e.readDisk(ctx, s)
	if err != nil {
		return err
	}
	return atRest(s, disk)
}

// mayName refuses a switch if another program has changed the definition.
func (d *diskState) mayName(s *Spec, to direction) error {
	if d.config != s.Before() && d.config != to.end {
		return chainChanged(s, d)
	}
	return nil
}
