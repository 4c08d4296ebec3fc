// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// request is a call of a host that ends as an op.
type request struct {
	host workflow.PauseHost
	// key is the id of the call, its op and its task.
	key  string
	path string
	body any
}

// outcome is how such a call ended.
type outcome struct {
	// op is as it ended, where the host began it.
	op api.Op
	// failed is nil if the op is done.
	failed *api.Error
	// untouched: the host began nothing. again: and may do it when asked anew.
	untouched, again bool
}

// key is the id of the call verb of a migration, about an instance if that is not
// "", that was made attempt times before.
func key(migration, verb, instance string, attempt int) string {
	id := migration + "." + verb
	if instance != "" {
		id += "." + instance
	}
	if attempt > 0 {
		id += "." + strconv.Itoa(attempt+1)
	}
	return id
}

// ask makes a call and waits for the end of its op. The same call again goes on
// waiting. An error means that it is not known yet how it ends.
func (l *Loop) ask(ctx context.Context, r request) (outcome, error) {
	req, err := relay.Request{
		HostID: r.host.ID, HostName: r.host.Name, Who: call.Who, Method: http.MethodPost, Path: r.path, Change: true, Key: r.key,
	}.With(r.body)
	if err != nil {
		return outcome{}, err
	}
	status, answer, err := l.cfg.Relay.Do(ctx, req)
	if err != nil {
		return outcome{}, err
	}
	if refused := relay.Refusal(status, answer); refused != nil {
		return outcome{failed: refused, untouched: status < http.StatusInternalServerError, again: relay.Passes(refused)}, nil
	}
	return l.follow(ctx, req.Op())
}

// askNow makes a call that changes nothing, and is over with its answer.
func (l *Loop) askNow(ctx context.Context, r request) (outcome, error) {
	req, err := relay.Request{
		HostID: r.host.ID, HostName: r.host.Name, Who: call.Who, Method: http.MethodPost, Path: r.path,
	}.With(r.body)
	if err != nil {
		return outcome{}, err
	}
	status, answer, err := l.cfg.Relay.Do(ctx, req)
	if err != nil {
		return outcome{}, err
	}
	refused := relay.Refusal(status, answer)
	return outcome{failed: refused, untouched: true, again: refused != nil && relay.Passes(refused)}, nil
}

// follow asks a host for an op until it is over.
func (l *Loop) follow(ctx context.Context, req relay.Request) (outcome, error) {
	var end outcome
	_, err := retry.Poll(ctx, l.Every(), retry.Forever, func() (bool, error) {
		status, answer, err := l.cfg.Relay.Do(ctx, req)
		if err != nil {
			return false, err
		}
		o, err := relay.ReadOp(status, answer)
		if err != nil {
			return false, fmt.Errorf("read op %s of host %s: %w", req.Key, req.HostName, err)
		}
		switch o.State {
		case api.OpDone:
			end = outcome{op: o}
		case api.OpUndone, api.OpNeedsOperator:
			end = outcome{op: o, failed: whyEnded(o, req)}
		default:
			return false, nil
		}
		return true, nil
	})
	return end, err
}

func whyEnded(o api.Op, req relay.Request) *api.Error {
	if o.Error != nil {
		return o.Error
	}
	code := api.CodeInternal
	if o.State == api.OpNeedsOperator {
		code = api.CodeNeedsOperator
	}
	return api.Errorf(code, "operation %s on host %s ended as %s and gives no reason", req.Key, req.HostName, o.State)
}
