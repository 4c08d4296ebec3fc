// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
)

// promises holds a migration, while it goes on and whatever dies, against guarantees 1, 6 and 7 of
// ARCHITECTURE.md. Guarantee 4 is held at every look at the domain, by the world.
type promises struct {
	d   *daemon
	req StartRequest
	mig string

	// frozen is src as it was when start had returned, nil before, and no more once a cancel was
	// asked for.
	frozen *hvtest.ImageInfo
	thawed bool
	// accepted: a cancel was. TooLate: one was refused since the pivot was journaled.
	accepted, tooLate bool
	looks             int
}

// look is for each look at the migration.
func (p *promises) look(mig api.Migration) {
	p.d.t.Helper()
	switch mig.State {
	case api.MigrationCancelling, api.MigrationCancelled, api.MigrationNeedsOperator, api.MigrationError:
		p.thawed = true // by the manager itself, it may be
	case api.MigrationStarted, api.MigrationCopying, api.MigrationCopied, api.MigrationCompleting, api.MigrationCompleted:
		p.srcIsFrozen(mig)
	case api.MigrationStarting, api.MigrationOrphaned:
	}
	if p.looks++; p.looks%20 == 0 {
		p.sameAnswer()
	}
}

// srcIsFrozen is guarantee 1. A mirror freezes nothing.
func (p *promises) srcIsFrozen(mig api.Migration) {
	p.d.t.Helper()
	src, err := p.d.world.Info(p.d.world.Src.Path)
	if p.thawed || err != nil || mig.Method == steps.MethodMirror {
		return // it was deleted at the end, as it was asked for
	}
	if p.frozen == nil {
		p.frozen = &src
	}
	if src.Written != p.frozen.Written || src.Born != p.frozen.Born {
		p.d.t.Errorf("the migration is %s, and src has changed since it was frozen: it was written %d times, and now %d", mig.State, p.frozen.Written, src.Written)
	}
}

// cancelled is for the answer to a cancel.
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

// sameAnswer is guarantee 7: the same request is answered with the same migration, another one
// under its id refused, unless what has to be asked is away.
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

// kept is for the end of the migration, guarantee 6 among it.
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
