// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// timeOrZero is the time of a column in which 0 says that there was none yet.
func timeOrZero(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func decodeError(text []byte) (*api.Error, error) {
	if text == nil {
		return nil, nil
	}
	e := &api.Error{}
	if err := json.Unmarshal(text, e); err != nil {
		return nil, fmt.Errorf("decode error: %w", err)
	}
	return e, nil
}

// encodeError is an error as the database has it, NULL if there is none.
func encodeError(e *api.Error) (any, error) {
	if e == nil {
		return nil, nil
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode error: %w", err)
	}
	return string(b), nil
}

// microsOrZero is timeOrZero the other way round.
func microsOrZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
