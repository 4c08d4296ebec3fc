// SPDX-License-Identifier: Apache-2.0

package op

import "sync"

type wakes struct {
	mu      sync.Mutex
	count   int
	last    map[string]int // the count at the reason's last wake
	waiting map[string]chan struct{}
}

func newWakes() *wakes {
	return &wakes{last: map[string]int{}, waiting: map[string]chan struct{}{}}
}

func (w *wakes) heard() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// on returns a channel that is closed at the first wake for this reason after wake number count,
// or is closed already.
func (w *wakes) on(reason string, count int) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last[reason] > count {
		woken := make(chan struct{})
		close(woken)
		return woken
	}
	if w.waiting[reason] == nil {
		w.waiting[reason] = make(chan struct{})
	}
	return w.waiting[reason]
}

func (w *wakes) wake(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	w.last[reason] = w.count
	if c := w.waiting[reason]; c != nil {
		close(c)
		delete(w.waiting, reason)
	}
}
