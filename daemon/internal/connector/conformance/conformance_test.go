// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/connector/conformance"
	"github.com/volferry/volferry/daemon/internal/connector/connectortest"
)

// try runs the kit on a fake and returns what it has found, by check.
func try(t *testing.T, f connectortest.Fake) (found map[string]error, checks int) {
	t.Helper()
	var volumes []string
	if f.Target {
		volumes = []string{"one", "two"}
		for _, name := range volumes {
			if err := f.AddVolume(name, "FAKE-"+name, connectortest.GranularityBytes); err != nil {
				t.Fatal(err)
			}
		}
	}
	found = map[string]error{}
	failed := conformance.Run(t.Context(), conformance.Subject{
		Run:  runOf(f),
		Look: f.Look,
		Open: func(path string) (conformance.Device, error) {
			d, err := f.Open(path)
			if err != nil {
				return nil, err
			}
			device, ok := d.(conformance.Device)
			if !ok {
				return nil, errors.New("it is no device")
			}
			return device, nil
		},
		Interrupted: conformanceInterrupts, Volumes: volumes,
		Report: func(f conformance.Finding) {
			checks++
			if f.Err != nil {
				found[f.Check] = f.Err
			}
		},
	})
	if failed != len(found) {
		t.Errorf("%d checks have failed, and %d were reported: %v", failed, len(found), found)
	}
	return found, checks
}

func TestAConnectorThatKeepsToTheProtocolPasses(t *testing.T) {
	f := connectortest.Fake{Dir: t.TempDir()}
	found, checks := try(t, f)
	for check, err := range found {
		t.Errorf("%s: %v", check, err)
	}
	if checks < 25 {
		t.Errorf("%d checks were made", checks)
	}
	if left, err := os.ReadDir(f.Dir); err != nil || len(left) > 0 {
		t.Errorf("the kit has left %v (%v)", left, err)
	}
}

func TestATargetThatKeepsToTheProtocolPasses(t *testing.T) {
	f := connectortest.Fake{Dir: t.TempDir(), Target: true}
	found, checks := try(t, f)
	for check, err := range found {
		t.Errorf("%s: %v", check, err)
	}
	if checks < 18 {
		t.Errorf("%d checks were made", checks)
	}
}

// TestEachFlawOfATargetIsFound, by the check that is about it.
func TestEachFlawOfATargetIsFound(t *testing.T) {
	for flaw, check := range map[connectortest.Flaw]string{
		connectortest.LiesOfIdentity:   "connect gives a volume its device",
		connectortest.LiesOfPath:       "connect gives a volume its device",
		connectortest.LiesOfSize:       "connect gives a volume its device",
		connectortest.ConnectsOnce:     "a connect that is asked for again",
		connectortest.ConnectsAny:      "a volume that the target does not have is not connected",
		connectortest.EndsShared:       "two volumes of a target are two devices",
		connectortest.LeavesSession:    "disconnect takes the device away",
		connectortest.DisconnectsOpen:  "a volume that is open is not disconnected",
		connectortest.DisconnectsOther: "the disconnect of another device is refused",
		connectortest.DisconnectsOnce:  "a disconnect that is asked for again is done",
		connectortest.AnyProtocol:      "a protocol that there is not is refused",
	} {
		t.Run(string(flaw), func(t *testing.T) {
			found, _ := try(t, connectortest.Fake{Dir: t.TempDir(), Flaw: flaw, Target: true})
			for name := range found {
				if strings.HasPrefix(name, check) {
					return
				}
			}
			t.Errorf("it is not found by the check %q; found: %v", check, found)
		})
	}
}

// TestATargetWithoutVolumesToTryFails: nothing would be known of it.
func TestATargetWithoutVolumesToTryFails(t *testing.T) {
	f := connectortest.Fake{Dir: t.TempDir(), Target: true}
	failed := conformance.Run(t.Context(), conformance.Subject{Run: runOf(f), Look: f.Look, Report: func(conformance.Finding) {}})
	if failed != 1 {
		t.Errorf("%d checks have failed, want one", failed)
	}
}

// TestEachFlawIsFound, by the check that is about it.
func TestEachFlawIsFound(t *testing.T) {
	for flaw, check := range map[connectortest.Flaw]string{
		connectortest.WrongSize:       "create makes a volume of exactly that size",
		connectortest.LiesOfSize:      "create makes a volume of exactly that size",
		connectortest.LiesOfIdentity:  "create makes a volume of exactly that size",
		connectortest.LiesOfPath:      "create makes a volume of exactly that size",
		connectortest.ForgetsOp:       "create makes a volume of exactly that size",
		connectortest.TakesOver:       "a create by another op is refused",
		connectortest.RefusesAgain:    "a create that is asked for again gives the same answer",
		connectortest.IgnoresIdentity: "the delete of another device is refused",
		connectortest.Shrinks:         "a volume is not made smaller",
		connectortest.Dirty:           "a new volume reads as zeros",
		connectortest.LosesData:       "extend makes a volume exactly that large",
		connectortest.OnlyOnce:        "a delete that is asked for again is done",
		connectortest.LeavesDevice:    "delete deletes a volume",
		connectortest.DeletesOpen:     "a volume that is open is not deleted",
		connectortest.SaysNothing:     "a volume that is not there is not found",
		connectortest.AnyProtocol:     "a protocol that there is not is refused",
		connectortest.Rounds:          "a size that is no multiple is refused",
		connectortest.NoGranularity:   "inspect says what the pool is",
	} {
		t.Run(string(flaw), func(t *testing.T) {
			found, _ := try(t, connectortest.Fake{Dir: t.TempDir(), Flaw: flaw})
			for name := range found {
				if strings.HasPrefix(name, check) {
					return
				}
			}
			t.Errorf("it is not found by the check %q; found: %v", check, found)
		})
	}
}
