// SPDX-License-Identifier: Apache-2.0

// Package hostop makes calls of hosts that end as an op there. It follows the op to its end, and
// finds out whether a host has begun a call that no process waits for. The callers choose the ids
// of the calls, so a call may be repeated at any time.
package hostop

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// Tasks has the tasks for hosts.
type Tasks interface {
	Get(ctx context.Context, id string) (api.Task, *api.TaskAnswer, error)
	Withdraw(ctx context.Context, call store.Call, id string) (bool, error)
}

// Relay sends requests to hosts.
type Relay interface {
	Do(ctx context.Context, req relay.Request) (status int, body []byte, err error)
}

// Client sends calls to hosts.
type Client struct {
	Tasks Tasks
	Relay Relay
	// Call identifies the caller for the audit trail.
	Call store.Call
	// Every is the shortest interval between two queries of an op.
	Every time.Duration
}

// opWait is how long a host may wait for the end of an op before it answers, less than the relay's
// timeout.
const opWait = 15 * time.Second

// Request is a call that becomes an op on its host.
type Request struct {
	HostID, HostName string
	// Key is the id of the call, its op and its task.
	Key  string
	Path string
	Body any
	// ByID means that Key alone identifies a repeated call. Its body may change, such as a name in
	// it; the host gets the first one.
	ByID bool
}

// Outcome is the result of a call.
type Outcome struct {
	// Op is the ended op, if the host began it.
	Op api.Op
	// Answer is the document that answers a call without an op.
	Answer []byte
	// Failed is nil if the op is done.
	Failed *api.Error
	// Untouched means that the host began nothing, Again that a repeated call may succeed.
	Untouched, Again bool
}

// Key returns the id of a call with this verb about these objects of a migration. attempt is the
// number of earlier attempts, which have other ids.
func Key(migration, verb string, attempt int, about ...string) string {
	id := migration + "." + verb
	for _, a := range about {
		id += "." + a
	}
	if attempt > 0 {
		id += "." + strconv.Itoa(attempt+1)
	}
	return id
}

// About returns e with a prefix that names the failed action.
func About(e *api.Error, format string, args ...any) *api.Error {
	out := api.Errorf(e.Code, format+": %s", append(args, e.Message)...)
	out.Details = e.Details
	return out
}

// Ask sends a call and waits for the end of its op. A repeated request waits for the same op. An
// error means that the result is not known yet.
func (c *Client) Ask(ctx context.Context, r Request) (Outcome, error) {
	req, err := c.change(r)
	if err != nil {
		return Outcome{}, err
	}
	status, answer, err := c.Relay.Do(ctx, req)
	if err != nil {
		return Outcome{}, err
	}
	if refused := relay.Refusal(status, answer); refused != nil {
		return Outcome{Failed: refused, Untouched: status < http.StatusInternalServerError, Again: relay.Passes(refused)}, nil
	}
	return c.follow(ctx, req.Op())
}

func (c *Client) change(r Request) (relay.Request, error) {
	req := relay.Request{
		HostID: r.HostID, HostName: r.HostName, Who: c.Call.Who, Method: http.MethodPost, Path: r.Path, Change: true, Key: r.Key,
	}
	if r.ByID {
		req.Asked = workflow.TaskRequest{Method: req.Method, Path: req.Path}
	}
	return req.With(r.Body)
}

// AskNow makes a call that changes nothing and has no op.
func (c *Client) AskNow(ctx context.Context, r Request) (Outcome, error) {
	req, err := relay.Request{HostID: r.HostID, HostName: r.HostName, Who: c.Call.Who, Method: http.MethodPost, Path: r.Path}.With(r.Body)
	if err != nil {
		return Outcome{}, err
	}
	status, answer, err := c.Relay.Do(ctx, req)
	if err != nil {
		return Outcome{}, err
	}
	refused := relay.Refusal(status, answer)
	return Outcome{Answer: answer, Failed: refused, Untouched: true, Again: refused != nil && relay.Passes(refused)}, nil
}

// AskSurely is Ask, but queries the op if the answer leaves open whether the host has begun the
// call.
func (c *Client) AskSurely(ctx context.Context, r Request) (Outcome, error) {
	out, err := c.Ask(ctx, r)
	if err != nil || out.Failed == nil || out.Untouched || out.Op.ID != "" {
		return out, err
	}
	req, err := c.change(r)
	if err != nil {
		return Outcome{}, err
	}
	begun, err := c.follow(ctx, req.Op())
	if api.CodeOf(err) == api.CodeNotFound {
		out.Untouched = true // the host's journal has no such op, and the task is answered
		return out, nil
	}
	return begun, err
}

// Begun reports whether a host may have begun the call with this key. It withdraws a call that the
// host has not fetched.
func (c *Client) Begun(ctx context.Context, key string) (bool, error) {
	task, answer, err := c.Tasks.Get(ctx, key)
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
		return false, nil
	case err != nil:
		return false, err
	case answer != nil:
		return answer.Status < http.StatusBadRequest || answer.Status >= http.StatusInternalServerError, nil
	case task.State == api.TaskTaken:
		return true, nil
	}
	withdrawn, err := c.Tasks.Withdraw(ctx, c.Call, key)
	return !withdrawn, err
}

func (c *Client) follow(ctx context.Context, req relay.Request) (Outcome, error) {
	req.Wait = opWait
	for {
		asked := time.Now()
		status, answer, err := c.Relay.Do(ctx, req)
		if err != nil {
			return Outcome{}, err
		}
		o, err := relay.ReadOp(status, answer)
		if err != nil {
			return Outcome{}, fmt.Errorf("read op %s of host %s: %w", req.Key, req.HostName, err)
		}
		switch o.State {
		case api.OpDone:
			return Outcome{Op: o}, nil
		case api.OpUndone, api.OpNeedsOperator:
			return Outcome{Op: o, Failed: whyEnded(o, req)}, nil
		}
		if err := retry.Sleep(ctx, c.Every-time.Since(asked)); err != nil {
			return Outcome{}, err
		}
	}
}

func whyEnded(o api.Op, req relay.Request) *api.Error {
	if o.Error != nil {
		return o.Error
	}
	if o.State == api.OpNeedsOperator {
		return api.Errorf(api.CodeNeedsOperator, "operation %s on host %s needs an operator, and the host has not said why; on that host `volferryctl status` names what stands there, with the commands that end it",
			req.Key, req.HostName)
	}
	return api.Errorf(api.CodeInternal, "operation %s on host %s ended as %s and gives no reason", req.Key, req.HostName, o.State)
}
