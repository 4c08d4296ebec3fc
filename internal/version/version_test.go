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
		"v1.2.3":                   {Main: debug.Module{Version: "v1.2.3"}},
		"devel-0123456789ab":       {Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{revision}},
		"devel-0123456789ab-dirty": {Settings: []debug.BuildSetting{revision, modified}},
		"unknown":                  {},
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
