// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What a guest's firmware has stored comes along: the mark is where no firmware writes, so that
// nothing but what was on the shelf can have it.
func TestTheNVRAMOfAGuestComesBackFromTheShelf(t *testing.T) {
	leftToTestE2E(t)
	s := shelfGuest(t, startHost(t))
	s.bringBack(t, "running") // its first start makes the file
	s.bringBack(t, "shut off")
	mark := []byte("volferry's mark\n")
	before := s.nvram(s.Name)
	content, err := os.ReadFile(before)
	if err != nil {
		t.Fatal(err)
	}
	copy(content[len(content)-len(mark):], mark) // the end of what the firmware copies through
	if err := os.WriteFile(before, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s.bringOff(t, false)
	if err := os.Remove(before); err != nil { // as on another host; Volferry deletes none
		t.Fatal(err)
	}
	s.bringBack(t, "running")
	back, err := os.ReadFile(s.nvram(s.UUID))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(back, mark) {
		t.Error("the guest runs with another NVRAM than it had")
	}
	s.end(t)
}

// nvram is a file with the NVRAM of a guest: the lab calls it after the guest's name, and Volferry
// after its UUID.
func (s *shelf) nvram(of string) string {
	return filepath.Join(s.host.Libvirtd.NVRAMDir(), of+"_VARS.fd")
}
