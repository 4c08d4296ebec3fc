// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// maxTaskBody bounds the bodies of a task and its answer, like the API's bound on requests.
const maxTaskBody = 1 << 20

// lateAfter is the age after which a task that is sent again to the host that took it is late: its
// caller was answered long before. No lock expires by this clock; a wrong clock at worst makes the
// caller ask again.
const lateAfter = 10 * time.Minute

// Tasks has the registry's requests that may change something on hosts.
type Tasks struct{ db *store.DB }

// TaskRequest is the request as its caller made it. It may have names where the task has ids.
type TaskRequest struct {
	Method, Path string
	Body         json.RawMessage
}

// Create queues a call of a host's API as a task; the task's id is the idempotency key. A second
// call with the same id and request returns the existing task and its answer, also for another
// caller or host; another request returns idempotency_mismatch. Create compares the callers'
// original requests, because a name may now mean another object. A withdrawn task, which no host
// has taken, is queued again with the new values.
func (s *Tasks) Create(ctx context.Context, call store.Call, in api.Task, asked TaskRequest) (api.Task, *api.TaskAnswer, error) {
	if err := checkTask(in); err != nil {
		return api.Task{}, nil, err
	}
	request, err := ledger.HashRequest("task", []any{asked.Method, asked.Path, asked.Body})
	if err != nil {
		return api.Task{}, nil, err
	}
	// The task itself is the kept answer.
	call.Key = ""
	row, err := mutate(ctx, s.db, call, "task.create", in, func(ctx context.Context, tx *changeTx) (taskRow, error) {
		hostID, hostName, err := tx.HostNamed(ctx, in.Host)
		if err != nil {
			return taskRow{}, err
		}
		there, err := taskByID(ctx, tx, in.ID)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			err = tx.Exec(ctx, `INSERT INTO tasks (id, host_id, who, method, path, body, needs, request, state, created_us)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?)`,
				in.ID, hostID, in.Who, in.Method, in.Path, textOrNull(in.Body), strings.Join(in.Needs, " "), request, tx.At.UnixMicro())
		case err != nil:
			return there, err
		case !bytes.Equal(there.request, request):
			return there, api.Errorf(api.CodeIdempotencyMismatch, "the op id %s was used for another request; use a new one", in.ID)
		case there.State != api.TaskWithdrawn:
			return there, nil
		default:
			err = tx.Exec(ctx, "UPDATE tasks SET state = 'queued', host_id = ?, method = ?, path = ?, body = ?, needs = ?, created_us = ? WHERE id = ?",
				hostID, in.Method, in.Path, textOrNull(in.Body), strings.Join(in.Needs, " "), tx.At.UnixMicro(), in.ID)
		}
		if err != nil {
			return taskRow{}, err
		}
		if err := tx.auditTask(ctx, in.ID, hostName, there.State, api.TaskQueued, map[string]any{
			"method": in.Method, "path": in.Path, "who": in.Who,
		}); err != nil {
			return taskRow{}, err
		}
		return taskByID(ctx, tx, in.ID)
	})
	return row.Task, row.answer, err
}

func checkTask(in api.Task) error {
	if err := cmp.Or(validate.Required("task id", in.ID), validate.Text("caller", in.Who)); err != nil {
		return err
	}
	if !slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, in.Method) {
		return validate.Invalid("the method %s of a task changes nothing", validate.Quote(in.Method))
	}
	if !strings.HasPrefix(in.Path, "/") || len(in.Path) > validate.MaxPath {
		return validate.Invalid("the path %s of a task is not one of the API", validate.Quote(in.Path))
	}
	if len(in.Body) > maxTaskBody {
		return validate.Invalid("the body of a task is longer than %d bytes", maxTaskBody)
	}
	return validate.Printable("path of the task", in.Path)
}

func textOrNull(text []byte) any {
	if text == nil {
		return nil
	}
	return string(text)
}

func (tx *changeTx) auditTask(ctx context.Context, id, host, from, to string, details map[string]any) error {
	return tx.Audit(ctx, api.Event{What: "task." + to, Host: host, Object: "task/" + id, From: from, To: to, OpID: id, Details: details})
}

// Get returns the task with this id, and its answer, nil if it has none.
func (s *Tasks) Get(ctx context.Context, id string) (api.Task, *api.TaskAnswer, error) {
	row, err := taskByID(ctx, s.db.Reader(), id)
	return row.Task, row.answer, taskMissing(ledger.Unreadable(err), id)
}

// Pending returns the unanswered tasks of a host, queued and taken ones, oldest first.
func (s *Tasks) Pending(ctx context.Context, hostID string) ([]api.Task, error) {
	scan := func(row ledger.Scanner) (api.Task, error) {
		t, err := scanTask(row)
		return t.Task, err
	}
	return ledger.ReadAll(ctx, s.db.Reader(), scan, taskQuery+" WHERE t.host_id = ? AND t.state IN ('queued', 'taken') ORDER BY t.seq", hostID)
}

// Take marks the queued tasks among ids as taken, and returns all taken, unanswered tasks among
// ids: the host must now do them. It omits withdrawn and answered tasks, and other hosts' tasks.
// It marks tasks that were taken long before as late.
func (s *Tasks) Take(ctx context.Context, call store.Call, hostID string, ids []string) ([]api.Task, error) {
	if len(ids) == 0 {
		return []api.Task{}, nil
	}
	call.Key = ""
	return mutate(ctx, s.db, call, "task.take", ids, func(ctx context.Context, tx *changeTx) ([]api.Task, error) {
		id, _, err := tx.HostNamed(ctx, hostID)
		if err != nil {
			return nil, err
		}
		taken := []api.Task{}
		for _, task := range ids {
			t, err := taskByID(ctx, tx, task)
			if errors.Is(err, sql.ErrNoRows) || err == nil && t.hostID != id {
				continue
			}
			if err != nil {
				return nil, err
			}
			t.Late = t.State == api.TaskTaken && tx.At.Sub(t.CreatedAt) > lateAfter
			if t.State == api.TaskQueued {
				if err := tx.setTaskState(ctx, &t, api.TaskTaken); err != nil {
					return nil, err
				}
			}
			if t.State == api.TaskTaken {
				taken = append(taken, t.Task)
			}
		}
		return taken, nil
	})
}

func (tx *changeTx) setTaskState(ctx context.Context, t *taskRow, to string) error {
	if err := tx.Exec(ctx, "UPDATE tasks SET state = ? WHERE id = ?", to, t.ID); err != nil {
		return err
	}
	from := t.State
	t.State = to
	return tx.auditTask(ctx, t.ID, t.Host, from, to, nil)
}

// Answer stores the answer of the host's API. The first answer counts; later ones are ignored
// without an error.
func (s *Tasks) Answer(ctx context.Context, call store.Call, hostID, taskID string, in api.TaskAnswer) error {
	if in.Status < 200 || in.Status > 599 {
		return validate.Invalid("the status %d is none of an answer", in.Status)
	}
	if len(in.Body) > maxTaskBody {
		return validate.Invalid("the answer of task %s is longer than %d bytes", validate.Quote(taskID), maxTaskBody)
	}
	call.Key = ""
	_, err := mutate(ctx, s.db, call, "task.answer", nil, func(ctx context.Context, tx *changeTx) (none struct{}, err error) {
		t, err := taskByID(ctx, tx, taskID)
		if err != nil {
			return none, taskMissing(err, taskID)
		}
		id, name, err := tx.HostNamed(ctx, hostID)
		switch {
		case err != nil:
			return none, err
		case t.hostID != id:
			return none, api.Errorf(api.CodeNotYourHost, "task %s is one of host %s, and %s is not that", t.ID, t.Host, name)
		case t.State == api.TaskDone:
			return none, nil
		case t.State == api.TaskWithdrawn:
			return none, api.Errorf(api.CodeConflict, "task %s was withdrawn before any host took it", t.ID)
		}
		if err := tx.Exec(ctx, "UPDATE tasks SET state = 'done', status = ?, answer = ? WHERE id = ?", in.Status, textOrNull(in.Body), t.ID); err != nil {
			return none, err
		}
		return none, tx.auditTask(ctx, t.ID, t.Host, t.State, api.TaskDone, map[string]any{"status": in.Status})
	})
	return err
}

// Withdraw withdraws a queued task. It returns false if the host has taken the task, and may
// have done it.
func (s *Tasks) Withdraw(ctx context.Context, call store.Call, id string) (bool, error) {
	call.Key = ""
	return mutate(ctx, s.db, call, "task.withdraw", nil, func(ctx context.Context, tx *changeTx) (bool, error) {
		t, err := taskByID(ctx, tx, id)
		if err != nil {
			return false, taskMissing(err, id)
		}
		if t.State != api.TaskQueued {
			return t.State == api.TaskWithdrawn, nil
		}
		return true, tx.setTaskState(ctx, &t, api.TaskWithdrawn)
	})
}

// withdrawQueued withdraws the tasks that an earlier run of the registry has left queued. Their
// callers get the answer that the tasks were not begun. After a restore from a backup, which sends
// no tasks, they are withdrawn at the first start after its acceptance.
func (s *Tasks) withdrawQueued(ctx context.Context, who string) error {
	if _, restored := s.db.ReadOnly(); restored {
		return nil
	}
	ids, err := ledger.ReadAll(ctx, s.db.Reader(), ledger.ScanString, "SELECT id FROM tasks WHERE state = 'queued' ORDER BY seq")
	for _, id := range ids {
		if err == nil {
			_, err = s.Withdraw(ctx, store.Call{Who: who}, id)
		}
	}
	return err
}

// expire deletes ended tasks that are older than any kept answer.
func (s *Tasks) expire(ctx context.Context) error {
	if _, restored := s.db.ReadOnly(); restored {
		return nil
	}
	err := s.db.DeleteInBatches(ctx, "DELETE FROM tasks WHERE seq IN (SELECT seq FROM tasks WHERE created_us < ? AND state IN ('done', 'withdrawn') ORDER BY created_us LIMIT ?)",
		s.db.Now().Add(-ledger.KeepAnswers).UnixMicro())
	if err != nil {
		return fmt.Errorf("forget old tasks: %w", err)
	}
	return nil
}

type taskRow struct {
	api.Task
	hostID  string
	request []byte
	answer  *api.TaskAnswer
}

const taskQuery = `SELECT t.id, t.host_id, h.name, t.who, t.method, t.path, t.body, t.needs, t.request, t.state, t.status, t.answer, t.created_us
	FROM tasks t JOIN hosts h ON h.id = t.host_id`

func taskByID(ctx context.Context, q ledger.Querier, id string) (taskRow, error) {
	t, err := scanTask(q.QueryRowContext(ctx, taskQuery+" WHERE t.id = ?", id))
	if err != nil {
		return taskRow{}, fmt.Errorf("read task %s: %w", validate.Clip(id), err)
	}
	return t, nil
}

func taskMissing(err error, id string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return api.Errorf(api.CodeNotFound, "there is no task %s", validate.Quote(id))
	}
	return err
}

func scanTask(row ledger.Scanner) (taskRow, error) {
	var (
		t            taskRow
		needs        string
		body, answer []byte
		status       *int
		created      int64
	)
	err := row.Scan(&t.ID, &t.hostID, &t.Host, &t.Who, &t.Method, &t.Path, &body, &needs, &t.request, &t.State, &status, &answer, &created)
	t.Body, t.CreatedAt = json.RawMessage(body), ledger.FromMicros(created)
	if needs != "" {
		t.Needs = strings.Fields(needs)
	}
	if status != nil {
		t.answer = &api.TaskAnswer{Status: *status, Body: json.RawMessage(answer)}
	}
	return t, err
}
