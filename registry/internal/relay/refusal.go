// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// Refusal returns the error in a host's answer, nil for success.
func Refusal(status int, body []byte) *api.Error {
	if status < http.StatusMultipleChoices {
		return nil
	}
	var e api.ErrorBody
	if err := json.Unmarshal(body, &e); err != nil || e.Error == nil {
		return api.Errorf(api.CodeInternal, "the host answered %d, which is not Volferry's way to say it", status)
	}
	return e.Error
}

// Op returns the call that queries the op of another call (see ReadOp).
func (r Request) Op() Request {
	r.Method, r.Path, r.Body, r.Change = routes.ShowOp.Method, routes.ShowOp.PathOf(r.Key), nil, false
	return r
}

func (r Request) pathWithWait() string {
	if r.Wait == 0 {
		return r.Path
	}
	return r.Path + "?wait=" + r.Wait.String()
}

// ReadOp returns the op in a host's answer, or the host's refusal.
func ReadOp(status int, body []byte) (api.Op, error) {
	if refused := Refusal(status, body); refused != nil {
		return api.Op{}, refused
	}
	var answer struct {
		Op api.Op `json:"op"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return api.Op{}, fmt.Errorf("read answer: %w", err)
	}
	return answer.Op, nil
}

// Passes reports whether a refusal is temporary: nothing was done, and the same call may succeed
// later.
func Passes(e *api.Error) bool {
	if e == nil {
		return false
	}
	switch e.Code { //nolint:exhaustive // all others stay as they are
	case api.CodeHypervisorUnavailable, api.CodeRegistryUnavailable, api.CodeJournalUnavailable,
		api.CodeStaleEpoch, api.CodeStaleGeneration, api.CodeInstanceBusy:
		return true
	}
	return false
}
