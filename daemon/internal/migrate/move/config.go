// SPDX-License-Identifier: Apache-2.0

package move

import (
	"time"

	"github.com/volferry/volferry/daemon/internal/location"
)

// Config has the operator's settings for migrations.
type Config struct {
	// OverlayDir is the directory of overlays, on a persistent filesystem.
	OverlayDir string
	// OverlaysShared: other hosts see OverlayDir.
	OverlaysShared bool
	// Rules limit the paths of destinations.
	Rules location.Rules
	// OverlayMinFreeBytes is how much must be free in OverlayDir before a migration starts. The
	// most that the overlay can take suffices if that is less.
	OverlayMinFreeBytes int64
	// While less than ThrottleBelowBytes is free for overlays, the guests' writes are limited so
	// that the free space lasts for ThrottleFor; 0 is no limit.
	ThrottleBelowBytes int64
	ThrottleFor        time.Duration
	// SharedPools are pools that are shared although their type is not.
	SharedPools []string
}
