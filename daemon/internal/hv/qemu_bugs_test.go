// SPDX-License-Identifier: Apache-2.0

package hv

import "testing"

func TestWhichVersionsOfQEMULoseWritesWhenAJobBegins(t *testing.T) {
	for v, want := range map[Version]bool{
		{}:                               true, // unknown
		{Major: 6, Minor: 2}:             false,
		{Major: 7, Minor: 2, Patch: 22}:  false,
		{Major: 8}:                       true,
		{Major: 9, Minor: 2, Patch: 4}:   true,
		{Major: 10}:                      true,
		{Major: 10, Patch: 2}:            true,
		{Major: 10, Patch: 8}:            true,
		{Major: 10, Patch: 9}:            false,
		{Major: 10, Patch: 13}:           false,
		{Major: 10, Patch: 50}:           true, // on the way to 10.1
		{Major: 10, Minor: 1, Patch: 3}:  true,
		{Major: 10, Minor: 2, Patch: 1}:  true,
		{Major: 10, Minor: 2, Patch: 2}:  false,
		{Major: 10, Minor: 2, Patch: 90}: true, // on the way to 11.0
		{Major: 11}:                      false,
		{Major: 11, Minor: 1, Patch: 3}:  false,
	} {
		if got := JobStartOf(v).LosesWrites; got != want {
			t.Errorf("QEMU %s: %v, want %v", v, got, want)
		}
	}
}

func TestWhichVersionsOfQEMUMayKillAGuestWhenAJobBegins(t *testing.T) {
	for v, want := range map[Version]bool{
		{}:                              true, // unknown
		{Major: 6, Minor: 2}:            true,
		{Major: 7, Minor: 2, Patch: 22}: true,
		{Major: 8}:                      false,
		{Major: 10, Patch: 2}:           false,
	} {
		if got := JobStartOf(v).KillsGuest; got != want {
			t.Errorf("QEMU %s: %v, want %v", v, got, want)
		}
	}
}
