// SPDX-License-Identifier: Apache-2.0

// Package version returns the version of this program.
package version

import (
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
)

var release = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// Version is set by the build (-ldflags "-X …/internal/version.Version=1.2.3"). Read it with
// String.
var Version string

// String returns the version set by the build, else the version that the Go tool recorded (a
// module version, or the revision of a source tree) in the same form, else "unknown".
func String() string {
	if Version != "" {
		return Version
	}
	return recorded()
}

// recorded caches the Go tool's version, which every request has.
var recorded = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fromBuildInfo(info)
})

func fromBuildInfo(info *debug.BuildInfo) string {
	// The Go tool's pseudo-version of a commit (v0.0.0-DATE-COMMIT) has another form.
	if v := info.Main.Version; release.MatchString(v) {
		return strings.TrimPrefix(v, "v")
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(7, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = ".dirty"
			}
		}
	}
	if revision == "" {
		return "unknown"
	}
	return "0.0.0+g" + revision + dirty
}
