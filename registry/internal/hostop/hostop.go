// SPDX-License-Identifier: Apache-2.0

// Package hostop has hosts do what ends as an op there: it makes the call, follows its op to
// the end, and finds out whether a call that nobody waited for was begun. The ids of the
// calls are their callers', so the same call may be made again at any time. The package does
// not know what a call means.
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

// Store has the tasks that were given to hosts.
type Store interface {
	Task(ctx context.Context, id string) (api.Task, *api.TaskAnswer, error)
	WithdrawTask(ctx context.Context, call store.Call, id string) (bool, error)
}

// Relay sends requests to hosts.
type Relay interface {
	Do(ctx context.Context, req relay.Request) (status int, body []byte, err error)
}

// Client makes calls of hosts.
type Client struct {
	Store Store
	Relay Relay
	// Call is who makes the calls, for the audit trail.
	Call store.Call
	// Every is how often a host is asked at most how far an op is. One that can wait for the end
	// of the op answers when it has come.
	Every time.Duration
}

// opWait is how long a host may wait for the end of an op before it answers: less than the time
// after which the relay gives an answer up.
const opWait = 15 * time.Second

// Request is a call of a host that ends as an op.
type Request struct {
	HostID, HostName string
	// Key is the id of the call, of its op and of its task.
	Key  string
	Path string
	Body any
	// ByID: the call is known again by its id alone. Its body says what may change meanwhile,
	// such as a name; the host gets the first one.
	ByID bool
}

// Outcome is how such a call ended.
type Outcome struct {
	// Op is as it ended, where the host began it.
	Op api.Op
	// Answer is the document that a call is answered with which is over then.
	Answer []byte
	// Failed is nil if the op is done.
	Failed *api.Error
	// Untouched: the host began nothing. Again: and may do it when asked anew.
	Untouched, Again bool
}

// Key is the id of the call verb of a migration about these things, that was made attempt
// times before.
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

// About is an error with what could not be done before it.
func About(e *api.Error, format string, args ...any) *api.Error {
	out := api.Errorf(e.Code, format+": %s", append(args, e.Message)...)
	out.Details = e.Details
	return out
}

// Ask makes a call and waits for the end of its op. The same call again goes on waiting. An
// error means that it is not known yet how it ends.
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

// AskNow makes a call that changes nothing, and is over with its answer.
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

// AskSurely is Ask that leaves no doubt whether the host has begun anything: a call whose
// answer does not tell is looked up by its op.
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
		out.Untouched = true // its journal has no such op, and the task is answered
		return out, nil
	}
	return begun, err
}

// Begun reports whether a host may have begun what a call asked for. A call that it did not
// fetch is withdrawn.
func (c *Client) Begun(ctx context.Context, key string) (bool, error) {
	task, answer, err := c.Store.Task(ctx, key)
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
	withdrawn, err := c.Store.WithdrawTask(ctx, c.Call, key)
	return !withdrawn, err
}

// follow asks a host for an op until it is over.
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
