// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// StillOurs is called before an op touches the images of a migration. After a fence of this host
// it makes the op wait until the registry confirms that the migration still belongs to the host.
func (e *Env) StillOurs(ctx context.Context, s *Spec) error {
	epoch, behind, _ := e.fence.Behind(s)
	if !behind {
		return nil
	}
	row, err := e.registry.Migration(ctx, s.MigrationID)
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
		return e.Forgotten(ctx, s, false)
	case err != nil:
		return e.RegistryError(err)
	case row.State == api.MigrationOrphaned:
		return op.WaitFor(request.WaitRegistry, api.Errorf(api.CodeStaleEpoch,
			"this host was fenced: the migration of volume %s stands still until the host has rejoined", s.VolumeName))
	case row.State.Final():
		return e.Abandoned(ctx, s, row.State, false)
	}
	e.fence.Confirm(s, epoch)
	return nil
}

// Abandoned returns the error for a migration that an operator abandoned while this host was
// fenced. at is its state in the registry; switched means that the volume is at dst on this host.
func (e *Env) Abandoned(ctx context.Context, s *Spec, at api.MigrationState, switched bool) error {
	return e.endedAt(ctx, s, at, switched, fmt.Sprintf("the registry has ended migration %s of volume %s while this host was fenced: it is %s there", s.MigrationID, s.VolumeName, at))
}

// Forgotten is Abandoned for a migration that the registry does not know: its database was
// restored from an older backup, and has no locks for this migration.
func (e *Env) Forgotten(ctx context.Context, s *Spec, switched bool) error {
	if err := e.recordEnds(ctx); err != nil {
		return e.RegistryError(err)
	}
	return e.endedAt(ctx, s, api.MigrationCancelled, switched, fmt.Sprintf("the registry knows nothing of migration %s of volume %s: it was restored from a backup of before that", s.MigrationID, s.VolumeName))
}

func (e *Env) endedAt(ctx context.Context, s *Spec, at api.MigrationState, switched bool, how string) error {
	kept, err := e.KeptSrc(ctx, s, at)
	if err != nil {
		return err
	}
	kept = kept && !switched
	what := fmt.Sprintf("nothing was deleted on this host (%s); `%s` shows what is known", s.Leftovers(), s.WhichCommand())
	if kept {
		what = fmt.Sprintf("instance %s still has src, so what its guest wrote is brought back into %s; %s is left as it is", s.InstanceName, s.Src.Path, s.Dst.Path)
	}
	return &AbandonedError{kept: kept, why: api.Errorf(api.CodeNoMigration, "%s; %s", how, what).With("state", at)}
}

// KeptSrc reports whether the volume is still at src, attached only to the same instance by the
// same attachment, and was not moved since. Then no other host has written src, and the overlay's
// writes belong there.
func (e *Env) KeptSrc(ctx context.Context, s *Spec, at api.MigrationState) (bool, error) {
	if at != api.MigrationCancelled || !s.Attached() {
		return false, nil
	}
	vol, err := e.registry.Volume(ctx, s.VolumeID)
	switch code := api.CodeOf(err); {
	case code == api.CodeNotFound || code == api.CodeNotYourHost:
		return false, nil
	case err != nil:
		return false, e.RegistryError(err)
	}
	if vol.MigrationID != "" || vol.Generation != s.Generation || len(vol.Attachments) != 1 {
		return false, nil
	}
	att := &vol.Attachments[0]
	return att.ID == s.SrcAttachmentID && att.InstanceID == s.InstanceID && att.State == api.AttachmentAttached && att.Location.Path == s.Src.Path, nil
}

// WhileOurs returns a context that is cancelled when the host is fenced, so that a long copy stops
// writing.
func (e *Env) WhileOurs(ctx context.Context, s *Spec) (context.Context, context.CancelFunc) {
	ctx, cancel := e.untilFenced(ctx, s)
	if e.Behind(s) {
		cancel(fencedMeanwhile(s))
	}
	return ctx, func() { cancel(nil) }
}

// untilFenced is WhileOurs, but only a later fence cancels the context.
func (e *Env) untilFenced(ctx context.Context, s *Spec) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	_, _, changed := e.fence.Behind(s)
	go func() {
		select {
		case <-changed:
			cancel(fencedMeanwhile(s))
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// CompareUntilFenced compares the chain before a switch with another chain, until the host is
// fenced.
func (e *Env) CompareUntilFenced(ctx context.Context, s *Spec, chain []hv.Image) error {
	ctx, cancel := e.untilFenced(ctx, s)
	defer cancel(nil)
	return e.Compare(ctx, s, s.BeforeChain(), chain, s.beforeBytes())
}

func fencedMeanwhile(s *Spec) error {
	return op.Retry(request.BusyDelay, api.Errorf(api.CodeStaleEpoch, "this host was fenced while volume %s was copied", s.VolumeName))
}

// ownershipBound is how long MayTakeLong waits for the registry.
const ownershipBound = 5 * time.Second

// MayTakeLong reports whether a step may take long while the guest is paused. A fence waits for
// the step's end: so after a fence the registry must first have confirmed the migration, or ended
// it.
func (e *Env) MayTakeLong(ctx context.Context, s *Spec) bool {
	ctx, cancel := context.WithTimeout(ctx, ownershipBound)
	defer cancel()
	err := e.StillOurs(ctx, s)
	var ended *AbandonedError
	return err == nil || errors.As(err, &ended)
}

// RaiseEpoch records a new epoch of this host.
func (e *Env) RaiseEpoch(epoch int64) { e.fence.Raise(epoch) }

// Behind reports whether the host was fenced since the registry last confirmed the migration.
func (e *Env) Behind(s *Spec) bool {
	_, behind, _ := e.fence.Behind(s)
	return behind
}
