// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/migrate/led"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/migrate/pause"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// Plans returns the op kinds of a migration for the runner, each with all steps that its ops may
// have. Way chooses the steps of an op.
//
// An image that the registry has freed may at once belong to another volume. So a cancel removes
// dst before the registry frees it. In a complete op the registry frees src first, because it must
// not name a deleted src, and the step that deletes src checks who uses it (DeleteSource).
func (e *Env) Plans() []op.Plan {
	all := append([]op.Plan{e.startPlan(), e.copyPlan(), e.completePlan(), e.cancelPlan()}, e.savedPlans()...)
	for i := range all {
		e.fenceSteps(all[i].Steps)
	}
	all = append(append(all, e.rollbackPlan(), e.Place.ReleasedPlan()), e.Led.LivePlans()...)
	for i := range all {
		for j := range all[i].Steps {
			all[i].Steps[j].Critical = pauseSteps[all[i].Steps[j].Name]
		}
	}
	return all
}

// startPlan freezes src: under an overlay, or because no program may open it. With method mirror
// it does not freeze src.
func (e *Env) startPlan() op.Plan {
	return op.Plan{Kind: move.KindStart, MustChoose: true, Steps: []op.Step{
		e.Place.StepRegister(),
		e.Overlay.StepKeepOff(),
		e.Place.StepCreateDestination(),
		e.Overlay.StepCreateOverlay(),
		e.Overlay.StepNameOverlay(),
		e.Overlay.StepSwitchToOverlay(),
		e.Overlay.StepVerifyFrozen(),
		e.Place.StepPublish("publish_started", api.MigrationStarted, ""),
	}}
}

// copyPlan copies a frozen src, or has QEMU make dst equal to src and keep it equal until the
// switch. The mirror is an op without the instance's key, since it takes long. If the mirror must
// begin with the guest suspended, an earlier op with the key begins it.
func (e *Env) copyPlan() op.Plan {
	return op.Plan{Kind: move.KindCopy, MustChoose: true, Steps: append(e.Pause.HeldSteps(move.ToDst),
		e.BlockJob.StepMirror(),
		e.Transfer.StepCopy(),
	)}
}

// completePlan brings the instance to dst: the overlay is folded into dst, by a block job of the
// running guest or with the guest off. With a mirror dst already has all writes.
func (e *Env) completePlan() op.Plan {
	return op.Plan{Kind: move.KindComplete, MustChoose: true, Steps: slices.Concat(
		[]op.Step{
			e.Transfer.StepVerifyCopy(),
			e.Place.StepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
		},
		e.Pause.HeldSteps(move.ToDst),
		[]op.Step{
			e.BlockJob.StepMirror(),
			e.BlockJob.StepCopyBehind(),
			e.BlockJob.StepReady(),
			e.Pause.StepPauseToSwitch(move.ToDst),
			e.Pause.StepDrain(move.ToDst),
			e.Pause.StepCompare(),
			e.Overlay.StepNameEnd(move.ToDst),
			e.Overlay.StepPivot(move.ToDst),
			e.Overlay.StepNameLeft(move.ToDst, leftOfSwitch),
			e.Pause.StepResume(move.ToSwitch),
			e.Overlay.SealsMirrored(e.Overlay.StepSettle(move.ToDst)),
			e.Pause.StepGuard("moving"),
			e.Pause.StepFold(move.ToDst),
			e.Pause.StepUnguard(),
			e.Overlay.StepNameDestination(),
			e.Place.StepPublish("publish_completed", api.MigrationCompleted, ""),
			e.Overlay.StepRemoveOverlay(),
			e.Overlay.StepEndKeepOff(),
			e.Seal.EndsSnapshot(e.Place.StepReleaseSource(), e.Seal.ReleaseSnapshot),
		},
	)}
}

// cancelPlan brings the instance back to src, and removes dst. The guest is already on src if
// another program has committed the overlay there (`virsh blockcommit --active --pivot`). Then src
// was written since the copy, so dst is worthless. The overlay is kept: once the guest has
// overwritten blocks in src, nothing proves that all of the overlay's blocks reached src.
func (e *Env) cancelPlan() op.Plan {
	return op.Plan{Kind: move.KindCancel, MustChoose: true, Steps: slices.Concat(
		[]op.Step{e.stepAdmitCancel(), e.stepAdmitCommitted()},
		e.backSteps(e.Pause.StepAbortMirror()),
		[]op.Step{
			e.Seal.StepDropSnapshot(),
			e.Place.StepRemoveDestination(),
			e.Place.StepPublish("publish_cancelled", api.MigrationCancelled, ""),
			e.Seal.EndsSnapshot(e.Overlay.StepEndKeepOff(), e.Seal.DropSnapshot),
		},
	)}
}

// rollbackPlan is cancelPlan for a migration that the registry has ended. If src still belongs to
// the instance, it folds the overlay back. Otherwise it only ends the block job, and changes no
// image and no definition.
func (e *Env) rollbackPlan() op.Plan {
	return op.Plan{Kind: move.KindRollback, MustChoose: true, Steps: slices.Concat(
		[]op.Step{e.stepAdmitRollback()},
		e.backSteps(e.Pause.StepEndMirror()),
		[]op.Step{e.Seal.EndsSnapshot(e.Overlay.StepHandOver(), e.Seal.DropSnapshot)},
	)}
}

// backSteps returns the steps that bring an instance back to src, with all its writes to the
// overlay. The step abort ends the block job into dst. The overlay is committed by a job of the
// running guest, or folded with the guest off.
func (e *Env) backSteps(abort op.Step) []op.Step {
	return slices.Concat(e.Pause.AbortSteps(abort), e.Pause.HeldSteps(move.ToSrc), []op.Step{
		e.BlockJob.StepCommit(),
		e.Pause.StepPauseToSwitch(move.ToSrc),
		e.Pause.StepDrain(move.ToSrc),
		e.Overlay.StepPivot(move.ToSrc),
		e.Overlay.StepNameLeft(move.ToSrc, leftOfSwitchBack),
		e.Pause.StepResume(move.ToSwitch),
		e.Overlay.StepSettle(move.ToSrc),
		e.Pause.StepGuard("bringing back"),
		e.Pause.StepFold(move.ToSrc),
		e.Pause.StepUnguard(),
		e.Seal.EndsSnapshot(e.Overlay.StepRemoveOverlay(), e.Seal.DropSnapshot),
	})
}

// leftOfSwitch returns the error for a definition that does not name dst after the pivot and
// cannot be corrected.
func leftOfSwitch(_ *op.Run, s *move.Spec, _ *move.DiskState) *api.Error {
	return look.EitherHasMore(s, move.ToDst)
}

func leftOfSwitchBack(r *op.Run, s *move.Spec, disk *move.DiskState) *api.Error {
	if r.Has(overlay.AdmitCommittedStep) {
		return look.ChainChanged(s, disk)
	}
	return look.OverlayLeft(s, disk)
}

func (e *Env) planOf(kind string) op.Plan {
	all := e.Plans()
	return all[slices.IndexFunc(all, func(p op.Plan) bool { return p.Kind == kind })]
}

// savedPlans returns the plans of the methods that the registry leads. In method save src is
// frozen because all guests that could write are saved. Before a step touches an image it asks the
// registry whether this host's part is still wanted (led.Wanted). No step changes the migration's
// state at the registry.
func (e *Env) savedPlans() []op.Plan {
	return []op.Plan{
		{Kind: move.KindCopySaved, Steps: []op.Step{
			e.Led.Wanted(e.Seal.SealsLeft(e.Led.StepClosed(led.ClosedStep)), led.ToCopy),
			e.Led.Wanted(e.Place.StepCreateDestination(), led.ToCopy),
			e.Led.Wanted(e.Led.ForgettingUndo(e.Transfer.StepCopy()), led.ToCopy),
			e.Led.Wanted(e.Led.UnwrittenSinceClosed(e.Seal.SealsLeft(e.Led.StepClosed(led.StillClosedStep))), led.ToCopy),
		}},
		{Kind: move.KindMakeLive, Steps: []op.Step{
			e.Led.Wanted(e.Place.StepCreateDestination(), led.ToMake),
			e.Led.Wanted(e.Led.StepMarkDestination(), led.ToMake),
		}},
		{Kind: move.KindDropDst, Steps: []op.Step{
			e.Led.StepForget(),
			e.Led.Wanted(led.OnlyIf(e.Led.HasCopy, e.Place.StepRemoveDestination()), led.ToCancel),
		}},
		{Kind: move.KindDropSrc, Steps: []op.Step{
			e.Led.StepForget(),
			e.Led.Wanted(e.Led.StepClosed(led.ClosedStep), led.ToDelete),
			e.Led.Wanted(e.Place.StepReleaseSource(), led.ToDelete),
		}},
	}
}

// pauseSteps has the steps during which the op may have the guest paused.
var pauseSteps = stepNames(
	pause.ToBegin.Begin, pause.BeginStep, pause.ToBegin.End,
	move.ToSwitch.Begin, pause.DrainStep, move.CompareStep, overlay.NameDstStep, overlay.PivotStep, overlay.NameDstAfterPivotStep, overlay.NameSrcStep, move.ToSwitch.End,
	move.ToAbort.Begin, pause.AbortStep, move.ToAbort.End,
)

// PausesGuest reports whether an op may have paused its guest at the step with this name.
func PausesGuest(step string) bool { return pauseSteps[step] }
