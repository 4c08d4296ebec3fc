// SPDX-License-Identifier: Apache-2.0

// Package relay passes calls on from the registry's callers to the hosts that have to
// answer. The registry never connects to a host: a daemon fetches its tasks by long poll
// and posts the answers. The package knows which hosts are there, which host has to answer
// for a thing, which task waits for whom, and what a caller is told if no answer comes. It
// does not know what a task means.
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

// pendingTask is a task that somebody waits for, or that its host is to fetch. Its
// fields are guarded by the relay's mu; answer and err are set before over is
// closed and never after.
type pendingTask struct {
	id      string
	name    string // of the host, for messages
	host    string // its id, once the task is offered
	task    api.Task
	offered bool // the host may fetch it, or has
	waiting int
	expiry  *time.Timer

	over   chan struct{}
	answer api.TaskAnswer
	err    error
}

// host is a host that has polled, or that a task is for. Its fields are guarded
// by the relay's mu.
type host struct {
	// resume is held while it is found out what a new session is to do.
	resume sync.Mutex

	session string // of the daemon that has what was handed out; "" if that is not sure
	// sessions are all that there were lately.
	sessions sessions
	polls    int
	last     time.Time // the end of the last poll; zero before the first
	poll     *poll     // the newest, nil if none is open
	queue    []*pendingTask
	// announced is what its daemon said of itself last; nil before it did.
	announced *protocol.Announcement
}

// poll is an open long poll.
type poll struct {
	wake       chan struct{}
	superseded chan struct{}
}

const (
	// DefaultAnswerTimeout is how long a task may wait to be fetched, and how long a caller
	// waits for the answer.
	DefaultAnswerTimeout = 20 * time.Second
	// DefaultAbsence is how long after the end of its last long poll a host still counts as
	// present.
	DefaultAbsence = 30 * time.Second
)

// readPrefix begins the ids of tasks that change nothing. They are not stored,
// so an answer to one that nobody waits for any more is dropped.
const readPrefix = "read-"

// Store keeps the tasks that change something.
type Store interface {
	CreateTask(ctx context.Context, call store.Call, in api.Task, asked workflow.TaskRequest) (api.Task, *api.TaskAnswer, error)
	Task(ctx context.Context, id string) (api.Task, *api.TaskAnswer, error)
	PendingTasks(ctx context.Context, hostID string) ([]api.Task, error)
	TakeTasks(ctx context.Context, call store.Call, hostID string, ids []string) ([]api.Task, error)
	AnswerTask(ctx context.Context, call store.Call, hostID, taskID string, in api.TaskAnswer) error
	WithdrawTask(ctx context.Context, call store.Call, id string) (bool, error)
	Host(ctx context.Context, ref string) (api.Host, error)
	AuditSeen(ctx context.Context, what, object string) error
}

// Config is what a Relay needs.
type Config struct {
	Store Store
	Log   *slog.Logger
	// OnBreak, if not nil, is called with the id of a host when its newest poll ends because its
	// connection broke, before any later poll of it is admitted. It must not block or call the
	// relay.
	OnBreak func(hostID string)
	// AnswerTimeout and Absence have the defaults above if they are 0.
	AnswerTimeout, Absence time.Duration
}

// Relay passes calls on to hosts. It is safe for concurrent use. It uses the monotonic
// clock of this process: after a restart no host is present until it polls.
type Relay struct {
	cfg   Config
	began time.Time

	mu      sync.Mutex
	hosts   map[string]*host
	entries map[string]*pendingTask // by task id
}

// New returns a relay. No host is present yet.
func New(c Config) *Relay {
	if c.AnswerTimeout == 0 {
		c.AnswerTimeout = DefaultAnswerTimeout
	}
	if c.Absence == 0 {
		c.Absence = DefaultAbsence
	}
	return &Relay{cfg: c, began: time.Now(), hosts: map[string]*host{}, entries: map[string]*pendingTask{}}
}

// Request is one call of a host's API.
type Request struct {
	// HostID and HostName may be empty if Key names a task that is stored already.
	HostID   string
	HostName string
	// Who is the caller, in the form of the audit trail.
	Who    string
	Method string
	Path   string // with its query
	Body   []byte // a JSON document, or nothing
	// Needs are the features that the host has to have for it (protocol.Needs).
	Needs []string
	// Change says that the call may change something. It is then stored as a task before it
	// is offered, under Key, the Idempotency-Key of the call: who repeats the key finds
	// that task, at the host that it was first meant for.
	Change bool
	Key    string
	// Wait is, of the question how an op is, how long the host may wait for the end of the op
	// before it answers. A host that cannot wait answers at once.
	Wait time.Duration
	// Asked is the request as its caller made it, for comparison with a repeated request:
	// the caller's may have names where Path and Body have ids. If it is the zero value,
	// the request is passed on as it was made.
	Asked workflow.TaskRequest
}

// asked is the request by which a change is known again.
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
	default: // it has a wake-up to come
	}
}

// host is for callers that hold mu.
func (r *Relay) host(id string) *host {
	h := r.hosts[id]
	if h == nil {
		h = &host{}
		r.hosts[id] = h
	}
	return h
}
