// SPDX-License-Identifier: Apache-2.0

package relaytest

import (
	"net/http"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// Journal is what a daemon remembers of its tasks: a task that comes again is answered as
// before. Its owner lets one caller in at a time. The zero value is ready.
type Journal struct {
	// Mute has the daemon keep its next answers to itself.
	Mute int

	answers map[string]api.TaskAnswer
}

// Answer answers a task that is not a question about an op. A new task is done by do.
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

// AsksForOp returns the id of the op that a task asks for.
func AsksForOp(task api.Task) (id string, asks bool) { return strings.CutPrefix(task.Path, "/v1/ops/") }

// OpIs answers a question about an op.
func OpIs(op api.Op) api.TaskAnswer {
	return api.TaskAnswer{Status: http.StatusOK, Body: Document(map[string]any{"op": op})}
}
