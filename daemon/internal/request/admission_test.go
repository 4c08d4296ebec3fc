// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

const (
	kindOurs   = "ours"
	kindOthers = "others"
)

// input is an input that excludes all others.
type input struct{ Body }

func (*input) Keys() []string { return []string{"instance/i"} }
func (*input) Group() string  { return "i" }

// bench is an admission with ops that end when they receive their error.
type bench struct {
	admission *Admission
	let       chan error
}

// inBench runs a test in fake time.
func inBench(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{let: make(chan error)}
		work := func(ctx context.Context, _ *op.Run) error {
			select {
			case err := <-b.let:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		steps := []op.Step{{Name: "admit", Do: func(context.Context, *op.Run) error { return nil }}, {Name: "work", Do: work}}
		journal := optest.NewJournal()
		runner := optest.NewRunner(journal)
		runner.Register(op.Plan{Kind: kindOurs, Steps: steps}, op.Plan{Kind: kindOthers, Steps: steps})
		defer runner.Stop()
		b.admission = &Admission{Runner: runner, Journal: journal, Log: slog.New(slog.DiscardHandler), Kinds: []string{kindOurs}}
		test(t, b)
	})
}

// ask makes a request and returns whether it was decided, rather than found.
func (b *bench) ask(t *testing.T, opID, kind, what string) (decided bool, err error) {
	t.Helper()
	_, err = b.admission.Submit(t.Context(), Request{OpID: opID, Kind: kind, Body: what, Decide: func(context.Context) (Input, error) {
		decided = true
		return &input{}, nil
	}})
	return decided, err
}

func TestARequestIsDecidedOnceAndAnotherUnderItsIDIsRefused(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		for n := range 3 {
			if decided, err := b.ask(t, "a", kindOurs, "this"); err != nil || decided != (n == 0) {
				t.Errorf("time %d: decided %t, %v", n, decided, err)
			}
		}
		for _, other := range [][2]string{{kindOurs, "that"}, {kindOthers, "this"}} {
			if _, err := b.ask(t, "a", other[0], other[1]); api.CodeOf(err) != api.CodeIdempotencyMismatch {
				t.Errorf("%v under the same id: %v", other, err)
			}
		}
	})
}

// varied is an input that makes its op one of the variant kind.
type varied struct{ input }

func (*varied) Variant(string) string { return kindOthers }

func TestAnOpOfTheVariantIsThatOfItsRequest(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		for n := range 2 {
			o, err := b.admission.Submit(t.Context(), Request{OpID: "a", Kind: kindOurs, Variants: []string{kindOthers}, Decide: func(context.Context) (Input, error) {
				return &varied{}, nil
			}})
			if err != nil || o.Kind != kindOthers {
				t.Errorf("time %d: an op of kind %q, %v", n, o.Kind, err)
			}
		}
	})
}

func TestAManagerSaysInItsOwnWordsWhatItsOpsWaitFor(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.admission.Waits = func(st op.Status) string { return "a friend of " + st.Op.ID }
		if _, err := b.ask(t, "a", kindOurs, "x"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := b.admission.End(ctx, "a", "it is being done")
		if want := "it is being done, but a friend of a; it goes on by itself (op a)"; api.CodeOf(err) != api.CodeInstanceBusy || err.Error() != want {
			t.Errorf("the answer is %v", err)
		}
	})
}

func TestWhatWaitsBehindSomethingThatLastsIsTakenBack(t *testing.T) {
	for before, want := range map[string]api.Code{kindOthers: api.CodeInternal, kindOurs: ""} {
		inBench(t, func(t *testing.T, b *bench) {
			if _, err := b.ask(t, "first", before, "x"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if _, err := b.ask(t, "second", kindOurs, "x"); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			st, err := b.admission.Granted(t.Context(), "second", "admit")
			if api.CodeOf(err) != want || time.Since(began) > 2*DefaultTimeout {
				t.Errorf("behind %s: %v after %s (%s)", before, err, time.Since(began), st.State)
			}
			synctest.Wait() // the runner forgets a withdrawn op after its answer
			if left := len(b.admission.Runner.Active()); want != "" && left != 1 {
				t.Errorf("%d ops are left", left)
			}
		})
	}
}

func TestWhatWouldWaitBehindAnOpThatNeedsAnOperatorIsRefused(t *testing.T) {
	ends := func(b *bench, t *testing.T) error {
		_, err := b.admission.End(t.Context(), "second", "it is being done")
		return err
	}
	granted := func(b *bench, t *testing.T) error {
		_, err := b.admission.Granted(t.Context(), "second", "admit")
		return err
	}
	for name, wait := range map[string]func(*bench, *testing.T) error{"its end": ends, "its turn": granted} {
		inBench(t, func(t *testing.T, b *bench) {
			if _, err := b.ask(t, "first", kindOthers, "x"); err != nil {
				t.Fatal(err)
			}
			b.let <- op.UnknownOutcome(errors.New("a riddle"))
			synctest.Wait()
			if _, err := b.ask(t, "second", kindOurs, "x"); err != nil {
				t.Fatal(err)
			}
			err := wait(b, t)
			if err == nil || !strings.Contains(err.Error(), "has to end first, and an operator has to look at it: a riddle; `volferryctl op show first`") {
				t.Errorf("%s: %v, want a refusal that names the first op", name, err)
			}
			synctest.Wait() // the runner forgets a withdrawn op after its answer
			if left := len(b.admission.Runner.Active()); left != 1 {
				t.Errorf("%s: %d ops are left", name, left)
			}
		})
	}
}

func TestTheEndOfAnOpIsTheAnswer(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		for _, how := range []error{nil, errors.New("refused")} {
			id := "a"
			if how != nil {
				id = "b"
			}
			if _, err := b.ask(t, id, kindOurs, "x"); err != nil {
				t.Fatal(err)
			}
			go func() { b.let <- how }()
			if _, err := b.admission.End(t.Context(), id, "it is being done"); (err == nil) != (how == nil) {
				t.Errorf("the op ends with %v, and the answer is %v", how, err)
			}
		}
	})
}

func TestAnErrorOfACheckSaysThatNothingWasChanged(t *testing.T) {
	for err, want := range map[error]api.Code{
		hv.ErrUnavailable: api.CodeHypervisorUnavailable, context.DeadlineExceeded: api.CodeRegistryUnavailable,
	} {
		if got := Refused(err); api.CodeOf(got) != want {
			t.Errorf("%v becomes %v", err, got)
		}
	}
}

func TestUnderTheEpochOfNowOnlyWhatIsNewerIsTried(t *testing.T) {
	stale := api.Errorf(api.CodeStaleEpoch, "stale")
	for _, c := range []struct{ now, tries int64 }{{1, 1}, {2, 2}} {
		tries := int64(0)
		err := AsOfNow(1, func() (int64, error) { return c.now, nil }, func(epoch int64, again string) error {
			tries++
			if epoch == 2 && again == ".2" {
				return nil
			}
			return stale
		})
		if tries != c.tries || (err == nil) != (c.now == 2) {
			t.Errorf("with epoch %d now: %d tries, %v", c.now, tries, err)
		}
	}
}
