// SPDX-License-Identifier: Apache-2.0

package location

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoAnswer says that the filesystem of a path does not answer, as an NFS
// mount whose server is away: nobody can tell what is there.
var ErrNoAnswer = errors.New("its filesystem does not answer")

// statTimeout is how long a filesystem may take to say what a path is.
const statTimeout = 5 * time.Second

// Stat is stat(2) with a bound: on a filesystem that does not answer the system
// call never returns, and no context ends it. Then the error is ErrNoAnswer.
func Stat(path string) (unix.Stat_t, error) { return stats.stat(path) }

var stats = boundedStat{timeout: statTimeout, call: unix.Stat, hung: map[string]int{}}

// boundedStat makes every call in a goroutine of its own, and leaves it behind
// when the bound is over. While a call in a directory has no answer, further ones
// in it are refused at once: neither threads nor time are spent for every image of
// a pool that is away.
type boundedStat struct {
	timeout time.Duration
	call    func(path string, into *unix.Stat_t) error

	mu   sync.Mutex
	hung map[string]int // calls without an answer, by directory
}

func (b *boundedStat) stat(path string) (unix.Stat_t, error) {
	dir := filepath.Dir(path)
	b.mu.Lock()
	hung := b.hung[dir] > 0
	b.mu.Unlock()
	if hung {
		return unix.Stat_t{}, fmt.Errorf("look at %s: %w", path, ErrNoAnswer)
	}
	type answer struct {
		st  unix.Stat_t
		err error
	}
	answered := make(chan answer) // not buffered: the answer is taken, or the caller has left
	left := make(chan struct{})
	go func() {
		var a answer
		a.err = b.call(path, &a.st)
		select {
		case answered <- a:
		case <-left:
			b.count(dir, -1)
		}
	}()
	bound := time.NewTimer(b.timeout)
	defer bound.Stop()
	select {
	case a := <-answered:
		if a.err != nil {
			return a.st, fmt.Errorf("look at %s: %w", path, a.err)
		}
		return a.st, nil
	case <-bound.C:
		b.count(dir, 1)
		close(left)
		return unix.Stat_t{}, fmt.Errorf("look at %s: %w", path, ErrNoAnswer)
	}
}

func (b *boundedStat) count(dir string, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hung[dir] += by; b.hung[dir] == 0 {
		delete(b.hung, dir)
	}
}
