// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// offloading is a world before a copy between two devices of a storage that copies. fault happens
// at one call of the hypervisor.
func offloading(t *testing.T, fault *hvtest.Fault) *phase {
	t.Helper()
	p := started(t, hv.StateRunning, move.MethodOverlay)
	must(t, p.DeleteVolume(context.Background(), "new", p.spec.Dst.Name))
	_, err := p.CreateVolume(context.Background(), "new", p.spec.Dst.Name, "raw", testSize, nil)
	must(t, err)
	p.spec.SrcBlock, p.spec.DstBlock = true, true
	p.OfferCopy(srcPath, dstPath, testSize)
	p.kind = copyFrozen
	if fault != nil {
		p.Inject(*fault)
	}
	p.done = func(p *phase) error {
		return errors.Join(p.isCopied(), p.isAnswered(), p.wasAsked())
	}
	p.undone = func(*phase) error { return nil } // dst has a part
	return p
}

func (p *phase) isCopied() error {
	return p.Copier.Compare(context.Background(), p.spec.SrcChain(), p.spec.DstChain(), testSize, nil)
}

// isAnswered checks that no storage may be writing to dst.
func (p *phase) isAnswered() error {
	if open, err := p.Copier.Unanswered(p.spec.CopyKey()); open || err != nil {
		return fmt.Errorf("the storage has not answered (%w)", err)
	}
	return nil
}

func (p *phase) wasAsked() error {
	if !slices.Contains(p.Calls(), "CopyDevice") {
		return errors.New("the storage was not asked")
	}
	return nil
}

// The storage makes the copy, or refuses it in its first or second range.
func TestMatrixOfACopyThatTheStorageMakes(t *testing.T) {
	faults := map[string]*hvtest.Fault{"no fault": nil}
	for nth := 1; nth <= 2; nth++ {
		faults[fmt.Sprintf("range %d is refused", nth)] = &hvtest.Fault{Call: "CopyDevice", Nth: nth, Err: hv.ErrUnsupported}
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World { return offloading(t, fault) }})
		})
	}
}

// It is known whether the storage may be at work.
func TestACopyGoesOnAfterEachFailureOfTheStorage(t *testing.T) {
	for nth := 1; nth <= 2; nth++ {
		for _, after := range []bool{false, true} {
			for name, err := range map[string]error{
				"it does not answer": hv.ErrNoAnswer, "libvirt is away": hv.ErrUnavailable, "it says no": api.Errorf(api.CodeHypervisorUnavailable, "the array is away"),
			} {
				t.Run(fmt.Sprintf("%s, range %d, done %v", name, nth, after), func(t *testing.T) {
					p := offloading(t, &hvtest.Fault{Call: "CopyDevice", Nth: nth, After: after, Err: err})
					st := p.run(t)
					open, openErr := p.Copier.Unanswered(p.spec.CopyKey())
					answered := !errors.Is(err, hv.ErrNoAnswer) && !errors.Is(err, hv.ErrUnavailable)
					if st.State != op.StateUndone || open == answered || openErr != nil {
						t.Fatalf("the copy is %s, and that nobody has answered is %v (%v)", st.State, open, openErr)
					}
					if st := p.run(t); st.State != op.StateDone {
						t.Fatalf("the next copy is %s: %+v", st.State, st.Failure)
					}
					if err := p.done(p); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// dst may be equal to src.
func TestACompleteIsRefusedWhileAStorageMayWriteToDst(t *testing.T) {
	p := started(t, hv.StateStopped, move.MethodOverlay)
	p.Copier.Asked[p.spec.CopyKey()] = true
	p.kind = completeCold
	if st := p.run(t); st.State != op.StateUndone || st.Failure == nil || st.Failure.Code != string(api.CodeStateForbidden) {
		t.Errorf("the op is %s: %+v, want undone because of %s", st.State, st.Failure, api.CodeStateForbidden)
	}
	if err := onOverlayStill(p); err != nil {
		t.Error(err)
	}
}

// The remark is there only if a storage may write.
func TestACancelSaysThatAStorageMayWriteToWhatItLeaves(t *testing.T) {
	for _, asked := range []bool{false, true} {
		p := started(t, hv.StateStopped, move.MethodOverlay)
		p.spec.CreateDst, p.kind = false, cancelCold
		p.Copier.Asked[p.spec.CopyKey()] = asked
		st := p.run(t)
		if says := strings.Contains(request.Remark(&st), "has not answered"); st.State != op.StateDone || says != asked {
			t.Errorf("it ends %s and says %q, with a storage that has not answered: %v", st.State, request.Remark(&st), asked)
		}
	}
}

func (p *phase) run(t *testing.T) op.Status {
	t.Helper()
	return runOp(t, p)
}
