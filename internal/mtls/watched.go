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

// retryLoad is how soon files that could not be loaded are read again.
const retryLoad = time.Second

// watched is a value loaded from files. Each use loads changed files again.
type watched[T any] struct {
	what  string
	files []string
	load  func() (T, error)
	log   *slog.Logger

	// good is the last value loaded without an error.
	good atomic.Pointer[T]
	// seen is the state of the files when good was loaded, nil after an error.
	seen atomic.Pointer[[]fileState]

	mu      sync.Mutex // serializes loading
	err     error
	tried   []fileState
	triedAt time.Time
}

// fileState identifies the content of a file. A replaced file has another inode, a changed file
// another change time.
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

// get returns the value of the current files or, if they cannot be used, the last good value. The
// pointer changes only with the value.
func (w *watched[T]) get() *T {
	if seen := w.seen.Load(); seen != nil && w.unchanged(*seen) {
		return w.good.Load()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Before the files are read: the next use finds a later change.
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

func (w *watched[T]) trouble() error {
	w.get()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
