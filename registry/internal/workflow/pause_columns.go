// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
)

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

func microsOrZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
