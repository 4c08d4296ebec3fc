// SPDX-License-Identifier: Apache-2.0

// Package audit adds two sorts of events to the registry's audit trail: requests at this host's
// socket that only this host has carried out, and actions on guests that the daemon took without a
// request. Each event is stored on disk, in order, until the registry has it.
package audit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
)

const (
	most       = 1000
	retryEvery = 10 * time.Second
	suffix     = ".json"
)

// Post adds an event to the trail. An event posted twice with the same key is added once.
type Post func(ctx context.Context, key string, e api.EventPost) (api.Event, error)

// Outbox stores events until the registry has them. It is safe for concurrent use.
type Outbox struct {
	dir  string
	post Post
	log  *slog.Logger
	wake chan struct{}

	mu   sync.Mutex
	open map[string]int
}

// NewOutbox returns an outbox that keeps its events in dir, which must exist.
func NewOutbox(dir string, post Post, log *slog.Logger) *Outbox {
	return &Outbox{dir: dir, post: post, log: log, wake: make(chan struct{}, 1), open: map[string]int{}}
}

// Entry is the event of a request that has not ended. The caller must end it with Done or Drop.
type Entry struct {
	outbox *Outbox
	file   string
	event  api.EventPost
	// lost is true if there was no room for the event. Then Done does not store it either.
	lost bool
}

// Begin stores an event with the request's OpID. The outbox posts the event once the request has
// ended, or after a restart of the daemon. If Begin fails, the event is not on disk. The entry may
// be ended nevertheless.
func (o *Outbox) Begin(e api.EventPost) (*Entry, error) {
	sum := sha256.Sum256([]byte(e.OpID))
	n := &Entry{outbox: o, file: filepath.Join(o.dir, hex.EncodeToString(sum[:])+suffix), event: e}
	o.mu.Lock()
	o.open[n.file]++
	o.mu.Unlock()
	files, err := o.files()
	if err != nil {
		return n, err
	}
	if len(files) >= most {
		n.lost = true
		return n, fmt.Errorf("keep an audit event: %d are kept already, and the registry takes none", len(files))
	}
	return n, n.write()
}

// Note stores and posts an event that belongs to no request.
func (o *Outbox) Note(e api.EventPost) {
	n, err := o.Begin(e)
	if doneErr := n.Done(e.Object, e.Result); err == nil || doneErr == nil {
		err = doneErr
	}
	if err != nil {
		o.log.Warn("an event for the audit trail may be lost", "what", e.What, "object", e.Object, "err", err)
	}
}

func (n *Entry) write() error {
	text, err := json.Marshal(n.event)
	if err != nil {
		return fmt.Errorf("encode an audit event: %w", err)
	}
	return atomicfile.Write(n.file, text, 0o600)
}

// Done ends the entry of an accepted request: the event is posted with this object and result.
func (n *Entry) Done(object, result string) error {
	defer n.end()
	if n.lost {
		return nil
	}
	n.event.Object, n.event.Result = object, result
	return n.write()
}

// Drop ends the entry of a request that was refused before it began; its event is not posted.
func (n *Entry) Drop() error {
	defer n.end()
	return atomicfile.Remove(n.file)
}

func (n *Entry) end() {
	o := n.outbox
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[n.file]--; o.open[n.file] == 0 {
		delete(o.open, n.file)
	}
	select {
	case o.wake <- struct{}{}:
	default: // Run is already awake
	}
}

func (o *Outbox) files() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(o.dir, "*"+suffix))
	if err != nil {
		return nil, fmt.Errorf("list the audit events that are kept: %w", err)
	}
	return files, nil
}

// Run posts the stored events, oldest first, until ctx ends.
func (o *Outbox) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		again := o.postAll(ctx)
		var retry <-chan time.Time
		if again {
			retry = time.After(retryEvery)
		}
		select {
		case <-ctx.Done():
		case <-o.wake:
		case <-retry:
		}
	}
	return nil
}

type kept struct {
	file string
	api.EventPost
}

// postAll posts the stored events of ended requests. It returns true if some must be posted later.
func (o *Outbox) postAll(ctx context.Context) (again bool) {
	files, err := o.files()
	if err != nil {
		o.log.Warn("audit events wait", "err", err)
		return true
	}
	all := make([]kept, 0, len(files))
	for _, file := range files {
		if o.isOpen(file) {
			continue
		}
		k := kept{file: file}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &k.EventPost)
		}
		if err != nil {
			o.log.Warn("an audit event cannot be read", "file", file, "err", err)
			continue
		}
		all = append(all, k)
	}
	slices.SortStableFunc(all, func(a, b kept) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.file, b.file)) })
	for _, k := range all {
		if !o.postOne(ctx, k) {
			return true
		}
	}
	return false
}

func (o *Outbox) isOpen(file string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open[file] > 0
}

// postOne posts an event. It returns false if the registry may accept the event later.
func (o *Outbox) postOne(ctx context.Context, k kept) bool {
	_, err := o.post(ctx, k.OpID+".asked", k.EventPost)
	switch code := api.CodeOf(err); {
	case err == nil, code == api.CodeIdempotencyMismatch: // a repeated request; the trail has its first event
	case code == api.CodeInvalidArgument:
		o.log.Warn("the registry does not take an audit event", "what", k.What, "object", k.Object, "err", err)
	default:
		o.log.Debug("an audit event waits", "what", k.What, "object", k.Object, "err", err)
		return false
	}
	if err := atomicfile.Remove(k.file); err != nil {
		o.log.Warn("an audit event that was posted is still kept", "err", err)
	}
	return true
}
