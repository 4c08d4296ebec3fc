// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/connector/conformance"
	"github.com/volferry/volferry/daemon/internal/connector/connectortest"
)

// try runs the kit on a fake and returns its findings, by check.
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
		Interrupted: conformanceInterrupts, Volumes: volumes, Overwrite: true,
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

func TestAStorageThatCopiesPasses(t *testing.T) {
	for _, target := range []bool{false, true} {
		found, checks := try(t, connectortest.Fake{Dir: t.TempDir(), Target: target, Copies: true})
		for check, err := range found {
			t.Errorf("%s: %v", check, err)
		}
		if _, without := try(t, connectortest.Fake{Dir: t.TempDir(), Target: target}); checks < without+8 {
			t.Errorf("%d checks were made, and %d of one that does not copy", checks, without)
		}
	}
}

// TestEachFlawOfACopyIsFound by its own check.
func TestEachFlawOfACopyIsFound(t *testing.T) {
	for flaw, check := range map[connectortest.Flaw]string{
		connectortest.CopiesNothing: "copy copies a range",
		connectortest.CopiesMore:    "copy copies a range",
		connectortest.CopiesOnce:    "a copy that is asked for again",
		connectortest.CopiesAny:     "a copy from another device is refused",
		connectortest.CopiesLate:    "a copy that is ended after",
		connectortest.CopiesBeyond:  "a copy of more than there is is refused",
	} {
		t.Run(string(flaw), func(t *testing.T) {
			found, _ := try(t, connectortest.Fake{Dir: t.TempDir(), Flaw: flaw, Copies: true})
			for name := range found {
				if strings.HasPrefix(name, check) {
					return
				}
			}
			t.Errorf("it is not found by the check %q; found: %v", check, found)
		})
	}
}

// TestNothingIsCopiedBetweenVolumesThatMayNotBeWritten, though the storage could copy.
func TestNothingIsCopiedBetweenVolumesThatMayNotBeWritten(t *testing.T) {
	f := connectortest.Fake{Dir: t.TempDir(), Target: true, Copies: true}
	if err := f.AddVolume("one", "FAKE-one", connectortest.GranularityBytes); err != nil {
		t.Fatal(err)
	}
	conformance.Run(t.Context(), conformance.Subject{Run: runOf(f), Look: f.Look, Volumes: []string{"one"}, Open: func(path string) (conformance.Device, error) {
		d, err := f.Open(path)
		if err != nil {
			return nil, err
		}
		return noWriter{d}, nil
	}, Report: func(finding conformance.Finding) {
		if finding.Err != nil {
			t.Errorf("%s: %v", finding.Check, finding.Err)
		}
	}})
}

// noWriter is a device that may not be read or written.
type noWriter struct{ io.Closer }

func (noWriter) ReadAt([]byte, int64) (int, error)  { return 0, errors.New("it was read") }
func (noWriter) WriteAt([]byte, int64) (int, error) { return 0, errors.New("it was written") }
func (noWriter) Sync() error                        { return nil }

// TestEachFlawOfATargetIsFound by its own check.
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

// TestATargetWithoutVolumesToTryFails, because nothing would be tested.
func TestATargetWithoutVolumesToTryFails(t *testing.T) {
	f := connectortest.Fake{Dir: t.TempDir(), Target: true}
	failed := conformance.Run(t.Context(), conformance.Subject{Run: runOf(f), Look: f.Look, Report: func(conformance.Finding) {}})
	if failed != 1 {
		t.Errorf("%d checks have failed, want one", failed)
	}
}

// TestEachFlawIsFound by its own check.
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
