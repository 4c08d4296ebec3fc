// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
)

// Host is this host's identity in the registry.
type Host struct {
	ID    string
	Name  string
	Epoch int64
}

type runner interface {
	// Submit stores and starts another op.
	Submit(ctx context.Context, o op.Op) error
	Active() []op.Status
}

type env struct {
	Ports
	rules         location.Rules
	runner        runner
	host          func(context.Context) (Host, error)
	unplugTimeout time.Duration
	log           *slog.Logger
}

func (e *env) queued() []input {
	var out []input
	for _, st := range e.runner.Active() {
		var in input
		if st.Op.Kind == kindRelease && json.Unmarshal(st.Op.Input, &in) == nil {
			out = append(out, in)
		}
	}
	return out
}
