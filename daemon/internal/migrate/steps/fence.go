// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// errAbandoned ends an op whose migration the registry has ended without it: an
// operator gave it up while this host was fenced. Src and dst may be anybody's,
// so nothing of it is undone. Kept says that src is still the instance's.
type errAbandoned struct {
	why  *api.Error
	kept bool
}

func (e *errAbandoned) Error() string { return e.why.Message }

// codeAbandoned and codeAbandonedKept are how errAbandoned stands in the journal.
// They never leave the daemon.
const (
	codeAbandoned     api.Code = "abandoned"
	codeAbandonedKept api.Code = "abandoned_kept"
)

// StillOurs is asked before anything is begun that touches the images of a
// migration. It is nil unless the host was fenced since; then the registry has to
// say that it has the migration as this host's again, however long that takes.
func (e *Env) StillOurs(ctx context.Context, s *Spec) error {
	epoch, behind, _ := e.fence.behind(s)
	if !behind {
		return nil
	}
	row, err := e.registry.Migration(ctx, s.MigrationID)
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
		return op.UnknownOutcome(api.Errorf(api.CodeStaleEpoch,
			"this host was fenced, and the registry knows nothing of migration %s of volume %s any more", s.MigrationID, s.VolumeName))
	case err != nil:
		return e.registryError(err)
	case row.State == api.MigrationOrphaned:
		return op.WaitFor(request.WaitRegistry, api.Errorf(api.CodeStaleEpoch,
			"this host was fenced: the migration of volume %s stands still until the host has rejoined", s.VolumeName))
	case row.State.Final():
		return e.abandoned(ctx, s, row.State)
	}
	e.fence.confirm(s, epoch)
	return nil
}

// abandoned is the error for a migration that an operator gave up while this host
// was fenced.
func (e *Env) abandoned(ctx context.Context, s *Spec, at api.MigrationState) error {
	kept, err := e.keptSrc(ctx, s, at)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("nothing was deleted on this host (%s); `volferryctl volume which %s` shows what is known", s.Leftovers(), s.VolumeName)
	if kept {
		what = fmt.Sprintf("instance %s still has src, so what its guest wrote is brought back into %s; %s is left as it is", s.InstanceName, s.Src.Path, s.Dst.Path)
	}
	return &errAbandoned{kept: kept, why: api.Errorf(api.CodeNoMigration,
		"the registry has ended migration %s of volume %s while this host was fenced: it is %s there; %s", s.MigrationID, s.VolumeName, at, what).With("state", at)}
}

// keptSrc says whether the operator who gave the migration up kept src, and the
// instance has it by the same attachment, alone, as it was at the beginning: then
// nobody else can have written it, and what the guest wrote still belongs there.
func (e *Env) keptSrc(ctx context.Context, s *Spec, at api.MigrationState) (bool, error) {
	if at != api.MigrationCancelled || !s.Attached() {
		return false, nil
	}
	vol, err := e.registry.Volume(ctx, s.VolumeID)
	switch code := api.CodeOf(err); {
	case code == api.CodeNotFound || code == api.CodeNotYourHost:
		return false, nil
	case err != nil:
		return false, e.registryError(err)
	}
	if vol.MigrationID != "" || vol.Generation != s.Generation || len(vol.Attachments) != 1 {
		return false, nil
	}
	att := &vol.Attachments[0]
	return att.ID == s.SrcAttachmentID && att.InstanceID == s.InstanceID && att.State == api.AttachmentAttached && att.Location.Path == s.Src.Path, nil
}

// Leftovers names what a migration may have left on this host.
func (s *Spec) Leftovers() string {
	if s.Overlay != "" {
		return fmt.Sprintf("%s, %s and the overlay %s with the guest's writes since the start", s.Src.Path, s.Dst.Path, s.Overlay)
	}
	return fmt.Sprintf("%s and %s", s.Src.Path, s.Dst.Path)
}

// whileOurs is ctx until the host is fenced: what copies for hours stops writing
// then.
func (e *Env) whileOurs(ctx context.Context, s *Spec) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	_, behind, changed := e.fence.behind(s)
	fenced := op.Retry(request.BusyDelay, api.Errorf(api.CodeStaleEpoch, "this host was fenced while volume %s was copied", s.VolumeName))
	if behind {
		cancel(fenced)
	}
	go func() {
		select {
		case <-changed:
			cancel(fenced)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Inside a pause nothing waits for the registry: the guest comes first, and what
// is done there is right whoever owns the volume. What only lets go of the instance
// is done in any case.
var (
	doneUnfenced   = stepNames("register", abortStep, toAbort.end, "drain", "compare", "name_"+string(OnDst), "pivot", "name_"+string(OnSrc))
	undoneUnfenced = stepNames("register", toAbort.begin, toSwitch.begin, "drain", "compare", "name_"+string(OnDst), "pivot", "guard", "hold", "commit")
)

// fenced makes the steps of a plan up to its commit point ask stillOurs before
// they touch anything. Behind it an op goes forward, and the registry answers for
// itself: what it has ended then is for a person.
func (e *Env) fenced(p op.Plan) op.Plan {
	committed := false
	for i := range p.Steps {
		st := &p.Steps[i]
		if committed {
			st.Do = orNeedsOperator(st.Do)
		} else {
			st.Do, st.Undo = e.fencedDo(st), e.fencedUndo(st)
		}
		committed = committed || st.Name == p.Commit
	}
	return p
}

type rawFunc = func(context.Context, *op.Run) error

func (e *Env) fencedDo(st *op.Step) rawFunc {
	do := st.Do
	if doneUnfenced[st.Name] {
		return do
	}
	return func(ctx context.Context, r *op.Run) error {
		s, err := specOf(r)
		if err != nil {
			return err
		}
		if _, behind, _ := e.fence.behind(s); behind && (st.Name == toSwitch.begin || st.Name == toAbort.begin) {
			// A halt would wait for a step that waits for the registry here.
			return &errWorldChanged{"this host was fenced"}
		}
		if err := e.StillOurs(ctx, s); err != nil {
			return err
		}
		return do(ctx, r)
	}
}

// fencedUndo: what is abandoned counts as undone.
func (e *Env) fencedUndo(st *op.Step) rawFunc {
	undo := st.Undo
	if undo == nil {
		return nil
	}
	return func(ctx context.Context, r *op.Run) error {
		s, err := specOf(r)
		if err == nil && !undoneUnfenced[st.Name] {
			err = e.StillOurs(ctx, s)
		}
		if err == nil {
			err = undo(ctx, r)
		}
		var abandoned *errAbandoned
		if errors.As(err, &abandoned) {
			return nil
		}
		return err
	}
}

func orNeedsOperator(do rawFunc) rawFunc {
	return func(ctx context.Context, r *op.Run) error {
		err := do(ctx, r)
		var abandoned *errAbandoned
		if errors.As(err, &abandoned) {
			return op.UnknownOutcome(err)
		}
		return err
	}
}
