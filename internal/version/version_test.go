// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"testing"
)

func TestVersionIsTheBestThatIsKnown(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for want, info := range map[string]*debug.BuildInfo{
		"1.2.3":                {Main: debug.Module{Version: "v1.2.3"}},
		"0.0.0+g0123456":       {Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{revision}},
		"0.0.0+g0123456.dirty": {Settings: []debug.BuildSetting{revision, modified}},
		"0.0.0+gabcdef0":       {Main: debug.Module{Version: "v0.0.0-20260112090000-abcdef012345"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abcdef0123456789"}}},
		"unknown":              {},
	} {
		if got := fromBuildInfo(info); got != want {
			t.Errorf("version = %q, want %q", got, want)
		}
	}
}

func TestBuildFlagWins(t *testing.T) {
	t.Cleanup(func() { Version = "" })
	Version = "9.9.9"
	if got := String(); got != "9.9.9" {
		t.Errorf("String() = %q, want what the build set", got)
	}
}
