// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"sync"
)

// silent counts, for each domain, the unanswered calls that lost their caller.
type silent struct {
	mu    sync.Mutex
	about map[string]int
}

func (s *silent) has(about string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.about[about] > 0
}

// while is called at the start of a call, with the caller's context. Call answered when libvirt
// has answered.
func (s *silent) while(ctx context.Context, about string) (answered func()) {
	counted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.add(about, 1)
		close(counted)
	})
	return func() {
		if !stop() {
			<-counted
			s.add(about, -1)
		}
	}
}

func (s *silent) add(about string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.about == nil {
		s.about = map[string]int{}
	}
	if s.about[about] += n; s.about[about] == 0 {
		delete(s.about, about)
	}
}
