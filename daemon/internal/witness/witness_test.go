// SPDX-License-Identifier: Apache-2.0

package witness_test

import (
	"context"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
)

type kernel struct {
	files []hv.OpenFile
	err   error
	// absent is a missing path.
	absent string
}

func (k kernel) OpenFiles(_ context.Context, _ string, paths ...string) ([]hv.OpenFile, error) {
	if slices.Contains(paths, k.absent) {
		return nil, fs.ErrNotExist
	}
	return slices.DeleteFunc(slices.Clone(k.files), func(f hv.OpenFile) bool { return !slices.Contains(paths, f.Path) }), k.err
}

func TestTheKernelsWordIsReadAsItIs(t *testing.T) {
	for name, c := range map[string]struct {
		kernel kernel
		want   witness.Held
	}{
		"no process":            {kernel{err: hv.ErrNotActive}, witness.Held{}},
		"a path of nothing":     {kernel{err: fs.ErrNotExist}, witness.Held{Process: true}},
		"not open":              {kernel{}, witness.Held{Process: true}},
		"open for reading":      {kernel{files: []hv.OpenFile{{Path: "/images/a", PID: 42, FD: 3}}}, witness.Held{Process: true, Open: true, PID: 42}},
		"open for both":         {kernel{files: []hv.OpenFile{{Path: "/images/a", FD: 3, Writable: true}, {Path: "/images/a", FD: 4}}}, witness.Held{Process: true, Open: true, Writable: true}},
		"who cannot be found":   {kernel{err: hv.ErrNoProcess}, witness.Held{}},
		"who cannot be reached": {kernel{err: hv.ErrUnavailable}, witness.Held{}},
	} {
		got, err := witness.Look(t.Context(), c.kernel, "id", "web1", "/images/a")
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if known := !errors.Is(c.kernel.err, hv.ErrNoProcess) && !errors.Is(c.kernel.err, hv.ErrUnavailable); known != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A missing image (an overlay after the switch) does not hide the others.
func TestSeveralImagesAreToldApartAlsoWithOneGone(t *testing.T) {
	k := kernel{files: []hv.OpenFile{{Path: "/images/a", FD: 3}, {Path: "/images/b", FD: 4, Writable: true}}}
	for _, k.absent = range []string{"", "/images/c"} {
		got, err := witness.LookAt(t.Context(), k, "id", "web1", "/images/a", "/images/c", "/images/b")
		want := []witness.Held{{Process: true, Open: true}, {Process: true}, {Process: true, Open: true, Writable: true}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("with %q gone: %+v, %v; want %+v", k.absent, got, err, want)
		}
	}
}

var errDisagree = errors.New("they disagree")

// agreed calls Agreed with these answers, one per look; the last is repeated.
func agreed(t *testing.T, says ...witness.Heard[int]) (looks int, view int, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := witness.Retry{Poll: time.Second, Bound: 5 * time.Second}
		view, err = witness.Agreed(t.Context(), p, "web1", func(context.Context) (witness.Heard[int], error) {
			looks++
			return says[min(looks, len(says))-1], nil
		})
	})
	return looks, view, err
}

func TestWhoAgreesIsBelievedAtOnce(t *testing.T) {
	if looks, view, err := agreed(t, witness.Heard[int]{View: 7}); looks != 1 || view != 7 || err != nil {
		t.Errorf("after %d looks: %d, %v", looks, view, err)
	}
}

func TestWhoDisagreesOrIsOccupiedIsHeardAgain(t *testing.T) {
	looks, view, err := agreed(t, witness.Heard[int]{View: 1, Disagree: errDisagree}, witness.Heard[int]{View: 2, Occupied: true}, witness.Heard[int]{View: 3})
	if looks != 3 || view != 3 || err != nil {
		t.Errorf("after %d looks: %d, %v", looks, view, err)
	}
}

func TestADisagreementThatStaysIsForTheOperator(t *testing.T) {
	looks, _, err := agreed(t, witness.Heard[int]{Disagree: errDisagree})
	if looks != 6 || !errors.Is(err, errDisagree) || reflect.TypeOf(err) != reflect.TypeOf(op.UnknownOutcome(nil)) {
		t.Errorf("after %d looks: %v", looks, err)
	}
}

func TestACallUnderWayIsWaitedForWhateverIsSeen(t *testing.T) {
	_, _, err := agreed(t, witness.Heard[int]{Disagree: errDisagree, Occupied: true})
	if errors.Is(err, errDisagree) || api.CodeOf(err) != api.CodeInstanceBusy {
		t.Errorf("got %v, want that a call is under way", err)
	}
}

func TestWhatCannotBeHeardIsPassedOn(t *testing.T) {
	boom := errors.New("boom")
	p := witness.Retry{Poll: time.Hour, Bound: time.Hour}
	_, err := witness.Agreed(t.Context(), p, "web1", func(context.Context) (witness.Heard[int], error) {
		return witness.Heard[int]{}, boom
	})
	if !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}
