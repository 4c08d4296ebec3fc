// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// lookEvery is how often a migration is asked where it is: no phase is known better.
const lookEvery = 50 * time.Millisecond

// phaseOf is the part of a move that a phase of the migration document belongs to, "" for none.
func phaseOf(phase string) string {
	switch phase {
	case "clone", "copy", "flush", "mirror":
		return "copy"
	case "verify", "verify_copy":
		return "verify"
	case "fold", "commit":
		return "fold"
	}
	return ""
}

// phases are when a move was seen in each of its parts.
type phases map[string]span

// saw notes where the migration is at a moment.
func (p phases) saw(phase string, at time.Time) {
	part := phaseOf(phase)
	if part == "" {
		return
	}
	s, ok := p[part]
	if !ok {
		s.from = at
	}
	s.to = at.Add(lookEvery)
	p[part] = s
}

// watch looks at the open migration of a volume until done is closed, and then sends what it saw.
func (s *stage) watch(ctx context.Context, volume string, done <-chan struct{}) <-chan phases {
	seen := make(chan phases, 1)
	go func() {
		p := phases{}
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				seen <- p
				return
			case <-ticker.C:
			}
			var open []api.Migration
			if s.daemon.Do(ctx, "GET", "/v1/migrations", nil, &open) != nil {
				continue // a look that fails shows in no phase
			}
			for _, m := range open {
				if m.VolumeName == volume {
					p.saw(m.Phase, time.Now())
				}
			}
		}
	}()
	return seen
}

// migration is the one that has moved a volume.
func (s *stage) migration(ctx context.Context, volume string) (api.Migration, error) {
	var all []api.Migration
	if err := s.daemon.Do(ctx, "GET", "/v1/migrations?all=1", nil, &all); err != nil {
		return api.Migration{}, err
	}
	for _, m := range all {
		if m.VolumeName == volume {
			return m, nil
		}
	}
	return api.Migration{}, fmt.Errorf("there is no migration of volume %s", volume)
}
