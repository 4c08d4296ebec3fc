// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// names has the names of the hosts: tasks have names, calls of hosts have ids.
var names = map[string]string{hostA: "a", hostB: "b"}

// tasks is a store of tasks in memory that behaves like the real one.
type tasks struct {
	mu     sync.Mutex
	rows   map[string]api.Task
	asked  map[string]string
	answer map[string]*api.TaskAnswer
	order  []string
	events []api.Event
	// fail, if not nil, is the error of the next call.
	fail error
	// afterTake is called after tasks were taken, before the host gets them.
	afterTake func()
}

func newTasks() *tasks {
	return &tasks{rows: map[string]api.Task{}, asked: map[string]string{}, answer: map[string]*api.TaskAnswer{}}
}

func (s *tasks) lock() (unlock func(), err error) {
	s.mu.Lock()
	err, s.fail = s.fail, nil
	return s.mu.Unlock, err
}

func (s *tasks) Create(_ context.Context, _ store.Call, in api.Task, asked workflow.TaskRequest) (api.Task, *api.TaskAnswer, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return api.Task{}, nil, err
	}
	row, ok := s.rows[in.ID]
	request := asked.Method + " " + asked.Path + " " + string(asked.Body)
	if ok && s.asked[in.ID] != request {
		return api.Task{}, nil, api.Errorf(api.CodeIdempotencyMismatch, "another request")
	}
	if !ok || row.State == api.TaskWithdrawn {
		in.State = api.TaskQueued
		s.rows[in.ID], s.asked[in.ID] = in, request
		s.order = append(s.order, in.ID)
	}
	return s.rows[in.ID], s.answer[in.ID], nil
}

func (s *tasks) Get(_ context.Context, id string) (api.Task, *api.TaskAnswer, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return api.Task{}, nil, err
	}
	row, ok := s.rows[id]
	if !ok {
		return api.Task{}, nil, api.Errorf(api.CodeNotFound, "there is no task %s", id)
	}
	return row, s.answer[id], nil
}

func (s *tasks) Pending(_ context.Context, hostID string) ([]api.Task, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return nil, err
	}
	pending := []api.Task{}
	for _, id := range s.order {
		if row := s.rows[id]; row.Host == names[hostID] && (row.State == api.TaskQueued || row.State == api.TaskTaken) {
			pending = append(pending, row)
		}
	}
	return pending, nil
}

func (s *tasks) Take(_ context.Context, _ store.Call, hostID string, ids []string) ([]api.Task, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return nil, err
	}
	var taken []api.Task
	for _, id := range ids {
		row := s.rows[id]
		if row.Host != names[hostID] || row.State != api.TaskQueued && row.State != api.TaskTaken {
			continue
		}
		row.State = api.TaskTaken
		s.rows[id] = row
		taken = append(taken, row)
	}
	if s.afterTake != nil {
		s.afterTake()
	}
	return taken, nil
}

func (s *tasks) Answer(_ context.Context, _ store.Call, hostID, taskID string, in api.TaskAnswer) error {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return err
	}
	row, ok := s.rows[taskID]
	switch {
	case !ok:
		return api.Errorf(api.CodeNotFound, "there is no task %s", taskID)
	case row.Host != names[hostID]:
		return api.Errorf(api.CodeNotYourHost, "of another host")
	case s.answer[taskID] == nil:
		row.State = api.TaskDone
		s.rows[taskID], s.answer[taskID] = row, &in
	}
	return nil
}

func (s *tasks) Withdraw(_ context.Context, _ store.Call, id string) (bool, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return false, err
	}
	row := s.rows[id]
	if row.State == api.TaskQueued {
		row.State = api.TaskWithdrawn
		s.rows[id] = row
	}
	return row.State == api.TaskWithdrawn, nil
}

// knownHosts are the hosts of names.
type knownHosts struct{}

func (knownHosts) Get(_ context.Context, ref string) (api.Host, error) {
	for id, name := range names {
		if ref == name {
			return api.Host{ID: id, Name: name}, nil
		}
	}
	return api.Host{}, api.Errorf(api.CodeNotFound, "there is no host %s", ref)
}

func (s *tasks) AuditSeen(_ context.Context, what, object string) error {
	unlock, err := s.lock()
	defer unlock()
	s.events = append(s.events, api.Event{What: what, Object: object})
	return err
}

// states returns the tasks as "id state", sorted.
func (s *tasks) states() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, id := range slices.Sorted(maps.Keys(s.rows)) {
		all = append(all, id+" "+s.rows[id].State)
	}
	return strings.Join(all, ", ")
}

func (s *tasks) failNext() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = api.Errorf(api.CodeRegistryUnavailable, "the disk is full")
}
