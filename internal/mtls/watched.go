// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// retryLoad is how soon files that could not be read are read again, unless
// they change before.
const retryLoad = time.Second

// watched is a value that is made from files, and made again when they change.
// It is looked at with each use, so that a change counts from the next use on.
type watched[T any] struct {
	what  string
	files []string
	load  func() (T, error)
	log   *slog.Logger

	// good is what was last made without an error.
	good atomic.Pointer[T]
	// seen is the state of the files that good was made from, nil after an error.
	seen atomic.Pointer[[]fileState]

	mu      sync.Mutex // serialises loading
	err     error
	tried   []fileState
	triedAt time.Time
}

// fileState tells one content of a file from another. A file that is replaced
// has another inode; one that is written to has another change time.
type fileState struct {
	errno        error
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func stateOf(path string) (s fileState) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		s.errno = err
		return s
	}
	return fileState{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
}

// newWatched loads for the first time, which must succeed.
func newWatched[T any](what string, log *slog.Logger, load func() (T, error), files ...string) (*watched[T], error) {
	w := &watched[T]{what: what, files: files, load: load, log: log}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reload(w.states()); w.err != nil {
		return nil, w.err
	}
	return w, nil
}

func (w *watched[T]) states() []fileState {
	states := make([]fileState, len(w.files))
	for i, path := range w.files {
		states[i] = stateOf(path)
	}
	return states
}

// get returns the value of the files as they are now, or the last good one. The
// pointer is the same for as long as the value is.
func (w *watched[T]) get() *T {
	if seen := w.seen.Load(); seen != nil && w.unchanged(*seen) {
		return w.good.Load()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Looked at before the files are read: what changes meanwhile is found by the
	// next use.
	now := w.states()
	if !same(now, w.tried) || w.err != nil && time.Since(w.triedAt) >= retryLoad {
		w.reload(now)
	}
	return w.good.Load()
}

func (w *watched[T]) unchanged(seen []fileState) bool {
	for i, path := range w.files {
		if stateOf(path) != seen[i] {
			return false
		}
	}
	return true
}

func same(a, b []fileState) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// reload is for callers that hold mu.
func (w *watched[T]) reload(states []fileState) {
	first := w.good.Load() == nil
	v, err := w.load()
	w.triedAt = time.Now()
	if err == nil {
		w.good.Store(&v)
		w.seen.Store(&states)
		if !first {
			w.log.Info("read again", "what", w.what)
		}
	} else {
		w.seen.Store(nil)
		cause := err
		err = fmt.Errorf("%s: %w", w.what, cause)
		if !first && (w.err == nil || w.err.Error() != err.Error()) {
			w.log.Error("cannot be read; the last good one stays", "what", w.what, "err", cause)
		}
	}
	w.err, w.tried = err, states
}

// trouble says why the files as they are now are not in use; nil if they are.
func (w *watched[T]) trouble() error {
	w.get()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
