// SPDX-License-Identifier: Apache-2.0

package monitor

import "sync"

// slowedGuests describes, by migration, the limits on guests' writes that protect the space for
// overlays. The limits are in the journal.
type slowedGuests struct {
	mu    sync.Mutex
	texts map[string]string
	left  []string
}

func (g *slowedGuests) text(migrationID string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.texts[migrationID]
}

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
