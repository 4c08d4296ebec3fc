// SPDX-License-Identifier: Apache-2.0

// Package relay passes calls from the registry's callers to hosts. The registry never connects to
// a host: a daemon fetches its tasks by long poll and posts the answers.
package relay

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// pendingTask is a task that callers wait for, or that its host may fetch. The relay's mu guards
// its fields; answer and err are set before over is closed and do not change afterwards.
type pendingTask struct {
	id      string
	name    string // the host's, for messages
	host    string // the host's id, once the task is offered
	task    api.Task
	offered bool // the host may fetch it, or has
	waiting int
	expiry  *time.Timer

	over   chan struct{}
	answer api.TaskAnswer
	err    error
}

// host is a host that has polled or has a task. The relay's mu guards its fields.
type host struct {
	resume sync.Mutex

	session  string // the daemon's session that has got the tasks; "" if uncertain
	sessions sessions
	polls    int
	last     time.Time // the end of the last poll; zero before the first
	poll     *poll     // the newest open poll, nil if none
	queue    []*pendingTask
	// announced is the daemon's last announcement; nil before the first.
	announced *protocol.Announcement
}

type poll struct {
	wake       chan struct{}
	superseded chan struct{}
}

const (
	// DefaultAnswerTimeout is how long a task may wait until its host fetches it, and a caller for
	// the answer.
	DefaultAnswerTimeout = 20 * time.Second
	// DefaultAbsence is how long a host still counts as present after its last long poll.
	DefaultAbsence = 30 * time.Second
)

// readPrefix begins the ids of tasks that change nothing. They are not stored.
const readPrefix = "read-"

// Tasks has the tasks that may change something.
type Tasks interface {
	Create(ctx context.Context, call store.Call, in api.Task, asked workflow.TaskRequest) (api.Task, *api.TaskAnswer, error)
	Get(ctx context.Context, id string) (api.Task, *api.TaskAnswer, error)
	Pending(ctx context.Context, hostID string) ([]api.Task, error)
	Take(ctx context.Context, call store.Call, hostID string, ids []string) ([]api.Task, error)
	Answer(ctx context.Context, call store.Call, hostID, taskID string, in api.TaskAnswer) error
	Withdraw(ctx context.Context, call store.Call, id string) (bool, error)
}

// Hosts has the hosts that fetch tasks.
type Hosts interface {
	Get(ctx context.Context, ref string) (api.Host, error)
}

// Trail is the audit trail.
type Trail interface {
	AuditSeen(ctx context.Context, what, object string) error
}

// Config has the dependencies of a Relay.
type Config struct {
	Tasks Tasks
	Hosts Hosts
	Trail Trail
	Log   *slog.Logger
	// OnBreak, if not nil, is called with a host's id when the connection of the host's newest
	// poll breaks, before a later poll is admitted. It must not block or call the relay.
	OnBreak func(hostID string)
	// AnswerTimeout and Absence default to the constants above if they are 0.
	AnswerTimeout, Absence time.Duration
}

// Relay passes calls to hosts. It is safe for concurrent use. After a restart of the registry no
// host is present until it polls.
type Relay struct {
	cfg   Config
	began time.Time

	mu      sync.Mutex
	hosts   map[string]*host
	entries map[string]*pendingTask // by task id
}

// New returns a relay without present hosts.
func New(c Config) *Relay {
	if c.AnswerTimeout == 0 {
		c.AnswerTimeout = DefaultAnswerTimeout
	}
	if c.Absence == 0 {
		c.Absence = DefaultAbsence
	}
	return &Relay{cfg: c, began: time.Now(), hosts: map[string]*host{}, entries: map[string]*pendingTask{}}
}

// Request is a call of a host's API.
type Request struct {
	// HostID and HostName may be empty if Key names a stored task.
	HostID   string
	HostName string
	// Who names the caller in the audit trail.
	Who    string
	Method string
	Path   string // including the query
	Body   []byte // a JSON document, or nil
	// Needs has the features that the host needs for the request (protocol.Needs).
	Needs []string
	// Change means that the call may change something. It is then stored as a task with the id
	// Key, its Idempotency-Key, before it is offered. A repeated Key finds that task, at the first
	// host.
	Change bool
	Key    string
	// Wait is how long the host may wait for the end of an op before it answers a query of the op.
	Wait time.Duration
	// Asked is the request as its caller made it, for comparison with a repeated request: it may
	// have names where Path and Body have ids. Zero means that they are the same.
	Asked workflow.TaskRequest
}

func (r Request) asked() workflow.TaskRequest {
	if r.Asked.Path != "" {
		return r.Asked
	}
	return workflow.TaskRequest{Method: r.Method, Path: r.Path, Body: r.Body}
}

func isRead(taskID string) bool { return strings.HasPrefix(taskID, readPrefix) }

func (p *poll) notify() {
	select {
	case p.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// host returns the host with this id, a new one if needed. The caller must hold mu.
func (r *Relay) host(id string) *host {
	h := r.hosts[id]
	if h == nil {
		h = &host{}
		r.hosts[id] = h
	}
	return h
}
