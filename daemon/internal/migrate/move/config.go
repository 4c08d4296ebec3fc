// SPDX-License-Identifier: Apache-2.0

package move

import (
	"time"

	"github.com/volferry/volferry/daemon/internal/location"
)

// Config has the operator's settings for migrations on this host.
type Config struct {
	// OverlayDir is the directory of this host's overlays, on a persistent filesystem.
	OverlayDir string
	// OverlaysShared: OverlayDir is on storage that other hosts see.
	OverlaysShared bool
	// Rules limit the paths of destinations.
	Rules location.Rules
	// OverlayMinFreeBytes must be free in OverlayDir before a migration starts, or less if the
	// overlay cannot grow as large.
	OverlayMinFreeBytes int64
	// While less than ThrottleBelowBytes is free for overlays, the guests' writes to them are
	// limited so that the free space lasts for ThrottleFor; 0 is no limit.
	ThrottleBelowBytes int64
	ThrottleFor        time.Duration
	// SharedPools are pools with the same bytes on other hosts, in addition to pools of a shared
	// type.
	SharedPools []string
}
