// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// PlaceOps returns the ops that show where volumes are, oldest first: the first op of each
// migration (Starts), and the requests to wake an instance in a move that the registry leads.
func (r *Reader) PlaceOps(ctx context.Context) ([]op.Op, error) {
	ops, err := r.Starts(ctx)
	if err != nil {
		return nil, err
	}
	for _, kind := range subject.WakeKinds {
		wakes, err := r.Journal.Ops(ctx, kind, false)
		if err != nil {
			return nil, request.JournalError(err)
		}
		ops = append(ops, wakes...)
	}
	sortByAge(ops)
	return ops, nil
}

// WakeOf returns the input of a request to wake an instance. The result is false for another op.
func WakeOf(o op.Op) (in memory.PauseInput, is bool, err error) {
	if !slices.Contains(subject.WakeKinds, o.Kind) {
		return in, false, nil
	}
	if err := json.Unmarshal(o.Input, &in); err != nil {
		return in, true, fmt.Errorf("decode the input of op %s: %w", o.ID, err)
	}
	return in, true, nil
}
