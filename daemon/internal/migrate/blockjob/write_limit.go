// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/shell"
)

// WriteLimit is the journal's record of a migration's limit on the writes of its guest. The record
// exists from before the first change until the disk has its own limit again. The migration limits
// a guest if a commit does not catch up, or if overlays are short of room. The lowest of these
// limits and the owner's counts.
type WriteLimit struct {
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name"`
	Target       string `json:"target"`
	// Process is the guest's process: a limit is only in the process.
	Process string `json:"process"`
	// Before is the limit that the disk had; 0 is none.
	Before int64 `json:"before"`
	// Is is the disk's last seen or set limit. Next is the limit that it was about to get, and may
	// have.
	Is   int64  `json:"is"`
	Next *int64 `json:"next,omitempty"`
	// Commit is the limit for the commit, Space for the room; 0 is none.
	Commit int64 `json:"commit,omitempty"`
	Space  int64 `json:"space,omitempty"`
	// Theirs is a limit that another program has set meanwhile, and that stays.
	Theirs *int64 `json:"theirs,omitempty"`
	// With are the targets of disks in this disk's throttle group, which get the limit too.
	With []string `json:"with,omitempty"`
	// Refused: the hypervisor cannot limit the writes of this disk.
	Refused bool `json:"refused,omitempty"`
}

func (l *WriteLimit) wanted() int64 { return lower(l.Before, lower(l.Commit, l.Space)) }

func lower(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (l *WriteLimit) mayHave(limit int64) bool {
	return limit == l.Is || l.Next != nil && limit == *l.Next
}

const writeLimitPrefix = "write_limit/"

func writeLimitKey(migrationID string) string { return writeLimitPrefix + migrationID }

// WriteLimits returns the records by migration.
func (e *Env) WriteLimits(ctx context.Context) (map[string]WriteLimit, error) {
	blobs, err := e.blobs.Blobs(ctx, writeLimitPrefix)
	if err != nil {
		return nil, request.JournalError(err)
	}
	all := make(map[string]WriteLimit, len(blobs))
	for key, data := range blobs {
		var l WriteLimit
		if err := json.Unmarshal(data, &l); err != nil {
			return nil, fmt.Errorf("decode %s: %w", key, err)
		}
		all[strings.TrimPrefix(key, writeLimitPrefix)] = l
	}
	return all, nil
}

// LimitForSpace limits the guest to this many bytes per second because the room for overlays is
// short (0 removes that limit), and returns the new record. It calls onOverlay under the lock, so
// that no step removes the limit meanwhile. If the overlay does not receive the guest's writes any
// more, nothing changes: the op that moves the guest removes the limit.
func (e *Env) LimitForSpace(ctx context.Context, s *move.Spec, bytesPerSecond int64, onOverlay func() (bool, error)) (WriteLimit, error) {
	e.writeLimits.Lock()
	defer e.writeLimits.Unlock()
	change := func(l *WriteLimit) { l.Space = bytesPerSecond }
	if bytesPerSecond > 0 {
		yes, err := onOverlay()
		if err != nil {
			return WriteLimit{}, err
		}
		if !yes {
			change = func(*WriteLimit) {}
		}
	}
	return e.setWriteLimit(ctx, s, change)
}

// ThrottleBytesPerSecond is the limit on a guest's writes while a commit or background copy does
// not catch up. A job to any usable disk is faster.
const ThrottleBytesPerSecond = 1 << 20

func (e *Env) limitForCommit(ctx context.Context, s *move.Spec, bytesPerSecond int64) error {
	e.writeLimits.Lock()
	defer e.writeLimits.Unlock()
	_, err := e.setWriteLimit(ctx, s, func(l *WriteLimit) { l.Commit = bytesPerSecond })
	return err
}

// EndWriteLimits restores the guest's earlier limit at the end of a migration. It keeps a limit
// that another program has set since, and returns a remark about that limit.
func (e *Env) EndWriteLimits(ctx context.Context, s *move.Spec) (remark string, err error) {
	e.writeLimits.Lock()
	defer e.writeLimits.Unlock()
	l, err := e.setWriteLimit(ctx, s, func(l *WriteLimit) { l.Commit, l.Space = 0, 0 })
	if err != nil || l.Theirs == nil || *l.Theirs == l.Before {
		return "", err
	}
	return fmt.Sprintf("the limit on the writes of %s (%d bytes per second; 0 is none) is left as it is: somebody has set it while this move had slowed the guest, which had %d before (`%s`)",
		s.Target, *l.Theirs, l.Before, shell.Line("virsh", "blkdeviotune", "--", s.InstanceName, s.Target)), nil
}

// setWriteLimit changes the record's reasons by the function change, sets the resulting limit on
// the disk, and returns the new record. The caller holds writeLimits.
func (e *Env) setWriteLimit(ctx context.Context, s *move.Spec, change func(*WriteLimit)) (WriteLimit, error) {
	l := WriteLimit{InstanceID: s.InstanceID, InstanceName: s.InstanceName, Target: s.Target}
	data, err := e.blobs.Blob(ctx, writeLimitKey(s.MigrationID))
	kept := err == nil
	switch {
	case errors.Is(err, op.ErrNotFound):
	case err != nil:
		return l, op.Retry(request.BusyDelay, request.JournalError(err))
	default:
		if err := json.Unmarshal(data, &l); err != nil {
			return l, fmt.Errorf("decode what is known of the limit on writes of disk %s of instance %s: %w", s.Target, s.InstanceName, err)
		}
	}
	before := l
	change(&l)
	nothing := l.Commit == 0 && l.Space == 0
	if !kept && nothing {
		return l, nil
	}
	now, err := e.lookAtWriteLimit(ctx, s, &l, kept)
	switch {
	case errors.Is(err, hv.ErrNotActive), errors.Is(err, hv.ErrNotFound):
		return l, e.forgetWriteLimit(ctx, s) // the limit ended with its process
	case err != nil:
		return l, e.move.HVError(err)
	}
	to := l.wanted()
	if l.Theirs != nil || l.Refused {
		to = now
	}
	if now == to {
		if l.Theirs == nil {
			l.Is, l.Next = now, nil
		}
		return l, e.keepWriteLimit(ctx, s, &l, &before, nothing)
	}
	if err := e.lookAtGroup(ctx, s, &l); err != nil {
		return l, err
	}
	l.Is, l.Next = now, &to
	if err := e.keepWriteLimit(ctx, s, &l, &before, false); err != nil {
		return l, err
	}
	before = l
	err = e.limits.PutWriteLimit(ctx, s.InstanceID, s.Target, to)
	switch {
	case errors.Is(err, hv.ErrUnsupported):
		l.Refused, l.Next = true, nil
	case err != nil:
		return l, e.move.HVError(err)
	default:
		l.Is, l.Next = to, nil
	}
	return l, e.keepWriteLimit(ctx, s, &l, &before, nothing)
}

// lookAtWriteLimit reads the limit of the disk, and records in l which program has set it. kept
// means that l was in the journal.
func (e *Env) lookAtWriteLimit(ctx context.Context, s *move.Spec, l *WriteLimit, kept bool) (now int64, err error) {
	if now, err = e.limits.LiveWriteLimit(ctx, s.InstanceID, s.Target); err != nil {
		return 0, err
	}
	process, err := e.domains.Process(ctx, s.InstanceID, s.Target)
	if errors.Is(err, hv.ErrNoProcess) {
		process.ID, err = l.Process, nil // it counts as the same process
	}
	switch {
	case err != nil:
		return 0, err
	case !kept, l.Process != process.ID && (now == l.Before || !l.mayHave(now)):
		// Another process has its definition's limit, unless it was restored from a save image
		// with ours.
		l.Before, l.Is, l.Next, l.Theirs, l.Refused = now, now, nil, nil, false
	case l.Theirs != nil:
		l.Theirs = &now
	case !l.mayHave(now):
		l.Theirs = &now
		e.log.Warn("somebody has changed a limit on writes that Volferry had set; it is left alone", "instance", s.InstanceName, "target", s.Target,
			"migration", s.MigrationID, "bytes_per_second", now, "before", l.Before)
	}
	l.Process = process.ID
	return now, nil
}

func (e *Env) lookAtGroup(ctx context.Context, s *move.Spec, l *WriteLimit) error {
	dom, err := e.domains.Domain(ctx, s.InstanceID)
	if err != nil {
		return e.move.HVError(err)
	}
	if l.With = dom.LimitedWith(s.Target); len(l.With) > 0 {
		e.WarnGroup(s.MigrationID, s.InstanceName, s.Target, l.With)
	}
	return nil
}

// WarnGroup logs that a limit on a disk also limits the other disks of its throttle group.
func (e *Env) WarnGroup(migrationID, instance, target string, with []string) {
	e.log.Warn("the limit on the writes of a disk changes for other disks of its throttle group too", "instance", instance, "migration", migrationID, "target", target, "with", with)
}

// keepWriteLimit writes the record to the journal if it changed. over means that no limit of the
// migration remains; then it removes the record.
func (e *Env) keepWriteLimit(ctx context.Context, s *move.Spec, l, before *WriteLimit, over bool) error {
	if over {
		return e.forgetWriteLimit(ctx, s)
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if was, err := json.Marshal(before); err == nil && string(was) == string(data) {
		return nil
	}
	if err := e.blobs.PutBlob(ctx, writeLimitKey(s.MigrationID), data); err != nil {
		return op.Retry(request.BusyDelay, request.JournalError(err))
	}
	return nil
}

func (e *Env) forgetWriteLimit(ctx context.Context, s *move.Spec) error {
	if err := e.blobs.DeleteBlobs(ctx, writeLimitKey(s.MigrationID)); err != nil {
		return op.Retry(request.BusyDelay, request.JournalError(err))
	}
	return nil
}
