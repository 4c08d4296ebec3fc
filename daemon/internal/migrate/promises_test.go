// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// promises checks a migration, during all faults, against guarantees 1, 6 and 7 of ARCHITECTURE.md.
// The world checks guarantee 4 at each look at the domain.
type promises struct {
	d   *daemon
	req StartRequest
	mig string

	// frozen is src when start returned, nil before that, and no longer valid after a cancel was
	// requested.
	frozen *hvtest.ImageInfo
	thawed bool
	// accepted: a cancel was accepted. tooLate: a cancel was refused after the pivot was in the
	// journal.
	accepted, tooLate bool
	looks             int
}

// look is called for each look at the migration.
func (p *promises) look(mig api.Migration) {
	p.d.t.Helper()
	switch mig.State {
	case api.MigrationCancelling, api.MigrationCancelled, api.MigrationNeedsOperator, api.MigrationError:
		p.thawed = true // perhaps by the manager itself
	case api.MigrationStarted, api.MigrationCopying, api.MigrationCopied, api.MigrationCompleting, api.MigrationCompleted:
		p.srcIsFrozen(mig)
	case api.MigrationStarting, api.MigrationOrphaned:
	}
	if p.looks++; p.looks%20 == 0 {
		p.sameAnswer()
	}
}

// srcIsFrozen checks guarantee 1. A mirror freezes nothing.
func (p *promises) srcIsFrozen(mig api.Migration) {
	p.d.t.Helper()
	src, err := p.d.world.Info(p.d.world.Src.Path)
	if p.thawed || err != nil || mig.Method == move.MethodMirror {
		return // it was deleted at the end, as requested
	}
	if p.frozen == nil {
		p.frozen = &src
	}
	if src.Written != p.frozen.Written || src.Born != p.frozen.Born {
		p.d.t.Errorf("the migration is %s, and src has changed since it was frozen: it was written %d times, and now %d", mig.State, p.frozen.Written, src.Written)
	}
}

// cancelled is called with the answer to a cancel.
func (p *promises) cancelled(err error) {
	p.d.t.Helper()
	switch code := api.CodeOf(err); {
	case err == nil:
		p.accepted, p.thawed = true, true
		if p.tooLate {
			p.d.t.Error("a cancel is accepted after one was refused as too late")
		}
	case code == api.CodePastPointOfNoReturn:
		p.tooLate = true
		if p.accepted {
			p.d.t.Errorf("a cancel was accepted, and then it is too late: %v", err)
		}
	default:
		p.thawed = true // it may have begun
	}
}

// sameAnswer checks guarantee 7: the same request gets the same migration, and another request with
// its id is refused, unless a required program is unavailable.
func (p *promises) sameAnswer() {
	p.d.t.Helper()
	again, err := p.d.manager().Start(context.Background(), p.req)
	if err == nil && again.ID != p.mig {
		p.d.t.Errorf("the same request is answered with migration %s, and it was %s", again.ID, p.mig)
	}
	other := p.req
	other.Target.DeleteSource = !other.Target.DeleteSource
	_, err = p.d.manager().Start(context.Background(), other)
	if err == nil || api.CodeOf(err) != api.CodeIdempotencyMismatch && api.CodeOf(err) != api.CodeJournalUnavailable {
		p.d.t.Errorf("another request under the same id is answered with %v", err)
	}
}

// kept is called at the end of the migration, and checks guarantee 6 too.
func (p *promises) kept(mig api.Migration) {
	p.d.t.Helper()
	if p.d.t.Failed() {
		return
	}
	p.look(mig)
	p.sameAnswer()
	if completed := mig.State == api.MigrationCompleted; p.accepted && completed || p.tooLate && !completed {
		p.d.t.Errorf("it ended as %s; a cancel was accepted: %t, and refused as too late: %t", mig.State, p.accepted, p.tooLate)
	}
}
