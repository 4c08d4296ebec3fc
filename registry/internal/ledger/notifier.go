// SPDX-License-Identifier: Apache-2.0

package ledger

import "sync"

// Notifier wakes all goroutines that wait for an Announce. It is safe for concurrent use.
type Notifier struct {
	mu   sync.Mutex
	next chan struct{}
}

// NewNotifier returns a Notifier.
func NewNotifier() *Notifier { return &Notifier{next: make(chan struct{})} }

// Wait returns a channel that is closed at the next Announce.
func (n *Notifier) Wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next
}

// Announce wakes all waiting goroutines.
func (n *Notifier) Announce() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.next)
	n.next = make(chan struct{})
}
