// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// answersOfExtend returns every failure that an extend's program may report.
func answersOfExtend() map[string]error {
	said := map[string]error{"it is killed": &connector.BrokenError{Verb: connector.VerbExtend, Err: errors.New("signal: killed")}}
	for _, code := range connector.Codes {
		said["it says "+code] = connector.Errorf(code, "no")
	}
	return said
}

// askWhile requests a larger size once, with a happening at the connector's extend.
func (s *resizeTrial) askWhile(t *testing.T, happens hosttest.Happening) error {
	t.Helper()
	calls := s.callsOfAResize(t)
	nth := slices.Index(calls, connector.VerbExtend) + 1
	if nth == 0 {
		t.Fatalf("its connector is not asked: %v", calls)
	}
	s.moments.Arrange(nth, happens)
	err := s.ask(t, grownSize)
	if !s.moments.Happened() {
		t.Fatal("it did not happen")
	}
	return err
}

// callsOfAResize returns the calls of an undisturbed resize of another such volume.
func (s *resizeTrial) callsOfAResize(t *testing.T) []string {
	t.Helper()
	other := newConnectorTrial(t, s.who)
	other.moments.Arrange(0, hosttest.Happening{})
	must(t, other.ask(t, grownSize))
	return other.moments.Calls()
}

// newConnectorTrial returns a trial with a device that its connector extends.
func newConnectorTrial(t *testing.T, who holder) *resizeTrial {
	t.Helper()
	i := slices.IndexFunc(resizeSubjects, func(s resizeSubject) bool { return s.name == byItsConnector })
	return newResizeTrial(t, i, who)
}

// TestAResizeIsWhatTheDeviceHasWhateverItsConnectorSays about an extend: it is done if the device
// has the size, otherwise no size changes.
func TestAResizeIsWhatTheDeviceHasWhateverItsConnectorSays(t *testing.T) {
	for what, says := range answersOfExtend() {
		for _, who := range []holder{nobody, stopped, running} {
			for _, done := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, of %s, done %t", what, who, done), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := newConnectorTrial(t, who)
						err := s.askWhile(t, hosttest.Happening{After: done, Lose: true, Err: says})
						again := connector.CodeOf(says) == connector.CodeBusy
						if (err == nil) != (done || again) {
							t.Errorf("the resize ends with %v", err)
						}
						if err != nil {
							must(t, s.hasSize(s.vol, who, testSize))
						}
						must(t, s.ask(t, grownSize)) // the same size in another request
						must(t, s.hasSize(s.vol, who, grownSize))
						s.settle(t)
					})
				})
			}
		}
	}
}

// TestAnExtendThatDoesSomethingElseIsRefusedAndNothingIsLost: the device has grown, its guest does
// not see it, and the next request can use all of it.
func TestAnExtendThatDoesSomethingElseIsRefusedAndNothingIsLost(t *testing.T) {
	extend := func(s *resizeTrial, bytes int64) {
		must(t, s.ExtendVolume(context.Background(), "thin", "db", bytes))
	}
	for what, c := range map[string]struct {
		size int64
		do   func(s *resizeTrial)
	}{
		"a part of it, and it is killed":         {grownSize - hvtest.BlockSize, func(s *resizeTrial) { extend(s, grownSize-hvtest.BlockSize) }},
		"more than that, and it is killed":       {grownSize + hvtest.BlockSize, func(s *resizeTrial) { extend(s, grownSize+hvtest.BlockSize) }},
		"all of it, a while after it was killed": {grownSize, func(s *resizeTrial) { time.AfterFunc(30*time.Second, func() { extend(s, grownSize) }) }},
	} {
		for _, who := range []holder{nobody, stopped, running} {
			t.Run(what+", of "+string(who), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newConnectorTrial(t, who)
					if err := s.askWhile(t, hosttest.Happening{Lose: true, Do: func() { c.do(s) }}); err == nil {
						t.Error("the resize is said to be done")
					}
					if registry, _, guest := s.found(); registry != testSize || who == running && guest != testSize {
						t.Errorf("the registry has %d bytes, the guest %d", registry, guest)
					}
					hosttest.Pass(time.Minute)
					s.moments.Cancel()
					must(t, s.ask(t, max(c.size, grownSize)))
					must(t, s.hasSize(s.vol, who, max(c.size, grownSize)))
					s.settle(t)
				})
			})
		}
	}
}
