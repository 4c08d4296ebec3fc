// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/volferry/volferry/internal/api"
)

// CreateTask queues a call of a host's API. The id is the key: the same id with
// the same method, path and body finds the task that is there, whoever asks and
// at whichever host it is, and its answer if it has one (else nil); with another
// request it is idempotency_mismatch. A task that was withdrawn, which nobody
// ever took, is queued again, at the host that in names.
func (s *Store) CreateTask(ctx context.Context, call Call, in api.Task) (api.Task, *api.TaskAnswer, error) {
	return api.Task{}, nil, errSkeleton()
}

// Task returns the task with the id, and its answer, nil if it has none.
func (s *Store) Task(ctx context.Context, id string) (api.Task, *api.TaskAnswer, error) {
	return api.Task{}, nil, errSkeleton()
}

// PendingTasks returns the tasks of a host that have no answer, oldest first:
// those that are queued, and those that it took.
func (s *Store) PendingTasks(ctx context.Context, hostID string) ([]api.Task, error) {
	return nil, errSkeleton()
}

// TakeTasks gives tasks to their host: those of ids that are queued become
// taken. It returns those that the host is to do now, which are all that are
// taken and unanswered; what was withdrawn or answered meanwhile is not among
// them.
func (s *Store) TakeTasks(ctx context.Context, call Call, hostID string, ids []string) ([]api.Task, error) {
	return nil, errSkeleton()
}

// AnswerTask keeps what the host's API answered. The first answer stands;
// another one later changes nothing and is no error.
func (s *Store) AnswerTask(ctx context.Context, call Call, hostID, taskID string, in api.TaskAnswer) error {
	return errSkeleton()
}

// WithdrawTask takes back a task that is queued. False says that its host took
// it meanwhile, so it may be done.
func (s *Store) WithdrawTask(ctx context.Context, call Call, id string) (bool, error) {
	return false, errSkeleton()
}
