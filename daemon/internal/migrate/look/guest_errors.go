// SPDX-License-Identifier: Apache-2.0

package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/internal/shell"
)

// SnapshotsLost returns the error for an instance with snapshots or checkpoints that would be lost
// with the overlay.
func SnapshotsLost(s *move.Spec, dom *hv.Domain) *api.Error {
	return api.Errorf(api.CodeStateForbidden,
		"instance %s has %s and %s in libvirt, made since the migration of volume %s began, and would lose them; delete them first",
		dom.Name, humanize.Count(dom.Snapshots, "snapshot"), humanize.Count(dom.Checkpoints, "checkpoint"), s.VolumeName)
}

// AtRest refuses an instance that is off and may return with other disks than its definition
// names: its guest was moved to another host, or has a managed save image with earlier disks.
func AtRest(s *move.Spec, disk *move.DiskState) error {
	if disk.Active || !disk.Dom.ManagedSave {
		return request.AtHome("cannot go on with the migration of volume "+s.VolumeName, disk.Dom)
	}
	return api.Errorf(api.CodeStateForbidden,
		"instance %s has a managed save image, which would start it with its old disks; start it or remove the image (`%s`)",
		s.InstanceName, shell.Line("virsh", "managedsave-remove", "--", s.InstanceName))
}

// ChainChanged returns the error for a chain that another program has changed, with the commands
// that repair it.
func ChainChanged(s *move.Spec, disk *move.DiskState) *api.Error {
	if disk.Active && !disk.Dom.Persistent {
		return move.Cured(api.Errorf(api.CodeChainChanged,
			"instance %s has no definition any more: somebody has undefined it while it runs, and it would be gone once it is off; the guest still runs with disk %s on %s; "+
				"define it again as it runs (`%s`, `%s`), then call again; `%s` shows what is known",
			s.InstanceName, s.Target, named(s, disk.Live, disk.Dom.LiveDisk(s.Target)), s.DumpCommand(), s.DefineCommand(), s.WhichCommand()),
			s.DumpCommand(), s.DefineCommand())
	}
	where := "the definition names " + named(s, disk.Config, disk.Dom.ConfigDisk(s.Target))
	switch gone := disk.Dom.ConfigDisk(s.Target) == nil; {
	case gone && disk.Active:
		where = fmt.Sprintf("the definition has no such disk; define it again as it runs (`%s`, `%s`)", s.DumpCommand(), s.DefineCommand())
	case gone:
		where = fmt.Sprintf("the definition has no such disk; define it again, with a copy of it as %s, whatever image that names (`%s`, `%s`)",
			s.DefinitionFile(), s.DefineCommand(), s.RepairCommand())
	}
	if disk.Active {
		where = "the guest runs on " + named(s, disk.Live, disk.Dom.LiveDisk(s.Target)) + ", and " + where
	}
	if advice := SnapshotAdvice(s, disk); advice != "" {
		where += "; " + advice + ", and call again (docs/how-to/recover.md, " + SnapshotSection + ")"
	}
	return move.Cured(api.Errorf(api.CodeChainChanged,
		"disk %s of instance %s was changed by somebody else: %s; `%s` shows what is known",
		s.Target, s.InstanceName, where, s.WhichCommand()), mend(s, disk)...)
}

// named describes the position of a disk for operators, and names the images that are not of the
// move.
func named(s *move.Spec, at move.Position, disk *hv.Disk) string {
	if at != move.Foreign || disk == nil || len(disk.Chain) == 0 {
		return s.Place(at)
	}
	paths := make([]string, len(disk.Chain))
	for i, img := range disk.Chain {
		paths[i] = img.Path
	}
	return fmt.Sprintf("%s (%s)", s.Place(at), strings.Join(paths, " over "))
}

// mend returns the commands that undo another program's change of the disk while an op waits for
// the operator, nil if they are unknown.
func mend(s *move.Spec, disk *move.DiskState) []string {
	fold := FoldCommands(s, disk)
	switch {
	case fold != nil:
		return fold
	case disk.Mirror != nil:
		if disk.Ours(move.ToDst, s) != nil {
			return nil // StepAbortMirror ends our job
		}
		return []string{move.EndJobCommand(s)}
	case disk.Dom.ConfigDisk(s.Target) == nil && !disk.Active:
		return []string{s.DefineCommand(), s.RepairCommand()}
	case disk.Dom.ConfigDisk(s.Target) != nil && (!disk.Active || disk.Live != move.Foreign && disk.Live != disk.Config):
		return []string{s.RepairCommand()}
	case disk.Active && disk.Live != move.Foreign && disk.Live != disk.Config:
		return []string{s.DumpCommand(), s.DefineCommand()}
	}
	return nil
}

// OverlayLeft returns the error for a disk that should be back on src, but is on the overlay or
// will be at the next start: a guest was started on the overlay, which may have newer writes.
func OverlayLeft(s *move.Spec, disk *move.DiskState) *api.Error {
	commands := move.CommitCommands(s, s.Src.Path, disk.Dom.State != hv.StatePaused)
	where := "runs on"
	if !disk.Active {
		where = "starts on"
		commands = append([]string{shell.Line("virsh", "start", "--", s.InstanceName)}, commands...)
	}
	return move.Cured(api.Errorf(api.CodeChainChanged,
		"instance %s is to be back on %s, and it %s %s, which may have writes that the source lacks; commit it to the source under the guest (%s), and call again; `%s` shows what is known",
		s.InstanceName, s.Place(move.OnSrc), where, s.Place(move.OnOverlay), move.Quoted(commands), s.WhichCommand()), commands...)
}

// EitherHasMore returns the error for a guest that went off during its switch. The guest may have
// written only to the image that it was switched to, if another program resumed it, or only to the
// overlay, if it was started there since.
func EitherHasMore(s *move.Spec, to move.Direction) *api.Error {
	return api.Errorf(api.CodeChainChanged,
		"instance %s went off while its disk was switched to %s, and that and %s do not read the same, or may not: either may have what the other lacks. Nothing was deleted; with the instance off, look at both, write that which is right over the other as docs/how-to/recover.md says (A guest that was resumed in the switch), and call again; `%s` shows what is known",
		s.InstanceName, to.Image(s).Path, s.Top(), s.WhichCommand())
}

// OverlayHasData returns the error for an overlay that the undo of a start must not delete: it has
// data (why is nil), or it is another file (the error why).
func OverlayHasData(s *move.Spec, why error) *api.Error {
	is := "a guest was started on it and put back since, and its writes are there alone"
	if why != nil {
		is = fmt.Sprintf("it is not the overlay that the start has made: %v", why)
	}
	keep := shell.Line("mv", "-n", "--", s.Overlay, s.Overlay+".kept")
	return move.Cured(api.Errorf(api.CodeChainChanged,
		"%s was to be deleted, since the start of its migration is taken back, but %s; nothing was deleted: put the file out of the way (`%s`), and call again; docs/how-to/recover.md (A source that was written) says what can be done with it",
		s.Overlay, is, keep), keep)
}

// SnapshotSection is the section of the page Recover about snapshots of other programs.
const SnapshotSection = "A snapshot over a disk that moves"

// SnapshotAdvice describes how to merge another program's snapshots into the guest's image, "" if
// there are none.
func SnapshotAdvice(s *move.Spec, disk *move.DiskState) string {
	fold := FoldCommands(s, disk)
	if fold == nil {
		return ""
	}
	chain := disk.Dom.LiveDisk(s.Target).Chain
	over := s.Place(positionOn(s, chain[Ours(s, chain)]))
	return fmt.Sprintf("over %s is a snapshot (%s), which has the newest writes: merge it (%s), "+
		"have libvirt forget it if it is listed (`%s`, `%s`)",
		over, chain[0].Path, move.Quoted(fold), shell.Line("virsh", "snapshot-list", "--", s.InstanceName), shell.Line("virsh", "snapshot-delete", "--metadata", "--", s.InstanceName, "NAME"))
}

// FoldCommands returns the commands that merge another program's snapshots into the guest's image,
// nil if there are none.
func FoldCommands(s *move.Spec, disk *move.DiskState) []string {
	if !disk.Active || !Under(s, disk.Dom.LiveDisk(s.Target)) {
		return nil
	}
	chain := disk.Dom.LiveDisk(s.Target).Chain
	return move.CommitCommands(s, chain[Ours(s, chain)].Path, disk.Dom.State != hv.StatePaused)
}

// Under reports whether a disk has an image over an image of the migration. The disk may be nil.
func Under(s *move.Spec, d *hv.Disk) bool { return d != nil && Ours(s, d.Chain) > 0 }

// Ours returns the index of the chain's first image that is src, dst or the overlay, or -1.
func Ours(s *move.Spec, chain []hv.Image) int {
	return slices.IndexFunc(chain, func(img hv.Image) bool { return positionOn(s, img) != move.Foreign })
}

func positionOn(s *move.Spec, img hv.Image) move.Position {
	switch img.Path {
	case s.Src.Path:
		return move.OnSrc
	case s.Dst.Path:
		return move.OnDst
	case s.Overlay:
		return move.OnOverlay
	}
	return move.Foreign
}

// ReadActive is ReadDisk for a guest that must run.
func (e *Env) ReadActive(ctx context.Context, s *move.Spec) (*move.DiskState, error) {
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil {
		return nil, err
	}
	if !disk.Active {
		return nil, GuestIsOff(s)
	}
	return disk, nil
}

// GuestIsOff returns an error that ends an op because it needs a running guest.
func GuestIsOff(s *move.Spec) error {
	return &move.WorldChangedError{What: fmt.Sprintf("instance %s is not running any more", s.InstanceName)}
}

// GuestRestarted returns an error that ends an op: the guest has another process, without its
// jobs.
func GuestRestarted(s *move.Spec) error {
	return &move.WorldChangedError{What: fmt.Sprintf("instance %s was stopped and started again", s.InstanceName)}
}

// JobEndedEarly returns the error that ends an op because its block job ended early, by an I/O
// error or with the guest's process. The guest is on its old image.
func JobEndedEarly(s *move.Spec, into hv.Image) error {
	return &move.WorldChangedError{What: jobEnded(s, into, logSaysWhy)}
}

const logSaysWhy = "its log says why"

func jobEnded(s *move.Spec, into hv.Image, why string) string {
	from, goesOn := s.Overlay, "its overlay"
	if s.Method == move.MethodMirror {
		from, goesOn = s.Src.Path, "it"
	}
	return fmt.Sprintf("QEMU ended the copy of %s into %s before it was done (%s); the guest goes on with %s and nothing is lost",
		from, into.Path, why, goesOn)
}

// fullBelow is the free space of a full filesystem: less than QEMU writes at once.
const fullBelow = 1 << 20

func (e *Env) dstIsFull(s *move.Spec, into hv.Image) bool {
	if into.Path != s.Dst.Path || into.Type != hv.SourceFile {
		return false
	}
	free, err := e.images.FreeBytes(filepath.Dir(into.Path))
	return err == nil && free < fullBelow
}

// JobFailed returns the error for a block job that ended early while it was watched. The op of a
// fold, which is short, is planned again, unless dst is full. A mirror could fail again after
// hours, so an operator decides, unless the guest goes off: libvirt ends a dying guest's jobs
// first.
func (e *Env) JobFailed(ctx context.Context, s *move.Spec, into hv.Image, run int) error {
	if e.dstIsFull(s, into) {
		return e.guestErrorAfter(ctx, s, run, DestroyNotice, api.Errorf(api.CodeNoSpace, "%s. Make room there and complete again, or take the move back",
			jobEnded(s, into, "its filesystem is full")))
	}
	if s.Method == move.MethodMirror {
		return e.guestErrorAfter(ctx, s, run, DestroyNotice, api.Errorf(api.CodeInternal, "%s", jobEnded(s, into, logSaysWhy)))
	}
	return JobEndedEarly(s, into)
}

// GuestIsOn returns an error that ends an op because it needs the guest off.
func GuestIsOn(s *move.Spec) error {
	return &move.WorldChangedError{What: fmt.Sprintf("instance %s was started", s.InstanceName)}
}

// These times are how long libvirt may take to notice the end of a guest. Only after this time a
// call counts as failed for another reason.
const (
	// DeathNotice is for a process that may have died.
	DeathNotice = time.Second
	deathPoll   = 20 * time.Millisecond
	// DestroyNotice is for a process that was asked to end: QEMU ends its jobs first, and libvirt
	// kills it after some 15 s. It is also for a process that libvirt has lost
	// (hv.ErrProcessEnds), on a slow host.
	DestroyNotice = 30 * time.Second
)

// GuestError is HVError for a call that needs the guest's process. If the process dies, the call
// fails shortly before libvirt reports the guest as off. An op that is undone in that moment could
// find an unknown state, so GuestError waits for libvirt.
func (e *Env) GuestError(ctx context.Context, s *move.Spec, err error) error {
	return e.guestErrorAfter(ctx, s, 0, DeathNotice, err)
}

// guestErrorAfter is GuestError for a call in this run of the guest (0 if unknown). It also
// detects that the guest was restarted.
func (e *Env) guestErrorAfter(ctx context.Context, s *move.Spec, run int, notice time.Duration, err error) error {
	if typed := e.move.HVError(err); typed != err { //nolint:errorlint // errors.Is would accept a wrapped error
		return typed
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, hv.ErrProcessEnds) {
		notice = max(notice, DestroyNotice)
	}
	_, gone := retry.Poll(ctx, max(deathPoll, notice/100), notice, func() (bool, error) {
		disk, err := e.move.ReadDisk(ctx, s)
		switch {
		case err != nil:
			return false, err
		case !disk.Active:
			return false, GuestIsOff(s)
		case run != 0 && disk.Dom.Run != run:
			return false, GuestRestarted(s)
		}
		return false, nil
	})
	return cmp.Or(gone, err)
}

// CheckNotSaved refuses the switch of a guest that was saved during the copy and is not restored.
func (e *Env) CheckNotSaved(ctx context.Context, s *move.Spec) error {
	if s.Method != move.MethodOverlay {
		return nil
	}
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil {
		return err
	}
	return AtRest(s, disk)
}

// MayName refuses a switch if another program has changed the definition.
func MayName(d *move.DiskState, s *move.Spec, to move.Direction) error {
	if d.Config != s.Before() && d.Config != to.End {
		return ChainChanged(s, d)
	}
	return nil
}
