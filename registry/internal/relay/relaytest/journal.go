// SPDX-License-Identifier: Apache-2.0

package relaytest

import (
	"net/http"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// Journal has a daemon's answers: a repeated task gets the same answer. It must not be used
// concurrently. The zero value is ready.
type Journal struct {
	// Mute is how many of the next answers the daemon does not send.
	Mute int

	answers map[string]api.TaskAnswer
}

// Answer answers a task, except a query of an op. For a new task it calls do.
func (j *Journal) Answer(task api.Task, do func(api.Task) api.TaskAnswer) (answer api.TaskAnswer, speak bool) {
	answer, known := j.answers[task.ID]
	if !known {
		if j.answers == nil {
			j.answers = map[string]api.TaskAnswer{}
		}
		answer = do(task)
		j.answers[task.ID] = answer
	}
	if j.Mute > 0 {
		j.Mute--
		return answer, false
	}
	return answer, true
}

// AsksForOp returns the id of the op that a task queries. The daemons of the tests answer at once,
// whatever time the query lets them wait.
func AsksForOp(task api.Task) (id string, asks bool) {
	path, _, _ := strings.Cut(task.Path, "?")
	return strings.CutPrefix(path, "/v1/ops/")
}

// OpIs returns the answer to a query of an op.
func OpIs(op api.Op) api.TaskAnswer {
	return api.TaskAnswer{Status: http.StatusOK, Body: Document(map[string]any{"op": op})}
}
