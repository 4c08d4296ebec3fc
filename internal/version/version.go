// SPDX-License-Identifier: Apache-2.0

// Package version says which Volferry this is. It knows nothing else.
package version

import "runtime/debug"

// Version is set by the build (-ldflags "-X …/internal/version.Version=1.2.3").
// Read it with String.
var Version string

// String returns the version of this program: what the build set, else what
// the Go tool recorded (a module version, or the revision of a source tree),
// else "unknown".
func String() string {
	if Version != "" {
		return Version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fromBuildInfo(info)
}

func fromBuildInfo(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "-dirty"
			}
		}
	}
	if revision == "" {
		return "unknown"
	}
	return "devel-" + revision + dirty
}
