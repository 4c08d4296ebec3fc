// SPDX-License-Identifier: Apache-2.0

package migrate

import "sync"

// slowedGuests are the guests that are slowed down because the room for overlays is short, by
// migration. The journal has what was done to them; this is what is said of it.
type slowedGuests struct {
	mu    sync.Mutex
	texts map[string]string
	left  []string
}

// text says how fast the guest of a migration may write, "" if it may as fast as it likes.
func (g *slowedGuests) text(migrationID string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.texts[migrationID]
}

// set replaces what is known, and returns the migrations of which something else is known now.
func (g *slowedGuests) set(texts map[string]string, left []string) (changed []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, text := range texts {
		if g.texts[id] != text {
			changed = append(changed, id)
		}
	}
	for id := range g.texts {
		if _, still := texts[id]; !still {
			changed = append(changed, id)
		}
	}
	g.texts, g.left = texts, left
	return changed
}
