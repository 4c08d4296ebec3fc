// SPDX-License-Identifier: Apache-2.0

package relaytest

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/store"
)

const pollFor = 20 * time.Second

// Perform does a task, and returns its answer and whether to send it.
type Perform func(task api.Task) (answer api.TaskAnswer, speak bool)

// Host is a host that fetches its tasks and does them concurrently.
type Host struct {
	ID, Name string

	registry *Registry
	perform  Perform
	session  int
	work     sync.WaitGroup

	mu    sync.Mutex
	polls context.CancelFunc // nil while it is away
}

// Report makes the host report these pools.
func (h *Host) Report(pools ...api.Pool) {
	h.registry.T.Helper()
	in := api.HostReport{ID: h.ID, Name: h.Name, Epoch: 1, Pools: pools}
	expect.Value(h.registry.Store.Reports.Receive(context.Background(), store.Call{}, in))(h.registry.T)
}

// Polling reports whether the host polls.
func (h *Host) Polling() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.polls != nil
}

func (h *Host) setPolls(cancel context.CancelFunc) (before context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, h.polls = h.polls, cancel
	return before
}

// Start makes the host poll, as a new process of its daemon.
func (h *Host) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	h.setPolls(cancel)
	h.session++
	relay, session := h.registry.Relay, strconv.Itoa(h.session)
	h.work.Go(func() {
		for ctx.Err() == nil {
			tasks, err := relay.Fetch(ctx, store.Call{}, h.ID, session, pollFor, func() error { return nil })
			if err != nil {
				return
			}
			for _, task := range tasks {
				h.work.Go(func() {
					answer, speak := h.perform(task)
					if !speak {
						return
					}
					if err := relay.Answer(ctx, store.Call{}, h.ID, task.ID, answer); err != nil && ctx.Err() == nil {
						h.registry.T.Errorf("answer: %v", err)
					}
				})
			}
		}
	})
}

// Away ends the polls, and waits for the tasks that the host has begun.
func (h *Host) Away() {
	if cancel := h.setPolls(nil); cancel != nil {
		cancel()
	}
	h.work.Wait()
}
