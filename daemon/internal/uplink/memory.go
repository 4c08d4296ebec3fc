// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Memory answers from the last view and later grants, without asking the registry. It is safe for
// concurrent use.
type Memory struct {
	hostID, hostName string
	state            *State
	log              *slog.Logger

	mu         sync.Mutex
	registered string
	view       View
	// currentAt is when the view was last known to be current. It is zero for a view of an earlier
	// process.
	currentAt time.Time
	viewErr   error
	// taken counts the grants of this process (pendingView).
	taken int64
}

func newMemory(cfg *Config) (*Memory, error) {
	m := &Memory{hostID: cfg.HostID, hostName: cfg.HostName, state: cfg.State, log: cfg.Log}
	if err := readJSON(m.state.viewPath(), &m.view); err != nil {
		return nil, fmt.Errorf("read what the registry last said: %w; move %s away only if no instance of this host runs: it says which volumes they may have", err, m.state.viewPath())
	}
	return m, nil
}

func (m *Memory) register(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registered = name
}

func (m *Memory) readAt() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.ReadAt
}

func (m *Memory) grants() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken
}

func (m *Memory) confirmedSince(t time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.currentAt.After(t)
}

func (m *Memory) ours(host string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.oursLocked(host)
}

func (m *Memory) oursLocked(host string) bool {
	return host != "" && (host == m.hostID || host == m.hostName || host == m.registered)
}

func (m *Memory) volumeNames() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[string]string{}
	for i := range m.view.Volumes {
		names[m.view.Volumes[i].ID] = m.view.Volumes[i].Name
	}
	return names
}

func errChanged(last, err error) bool { return last == nil || last.Error() != err.Error() }
