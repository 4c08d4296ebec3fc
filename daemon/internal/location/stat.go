// SPDX-License-Identifier: Apache-2.0

package location

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoAnswer means that the filesystem of a path does not answer, for example an NFS mount while
// its server is down.
var ErrNoAnswer = errors.New("its filesystem does not answer")

const statTimeout = 5 * time.Second

// Stat is stat(2) with a time limit, after which it returns ErrNoAnswer. On a filesystem that does
// not answer, the system call never returns.
func Stat(path string) (unix.Stat_t, error) {
	return stats.ask(filepath.Dir(path), path)
}

// DirFreeBytes returns how much a file in dir may still grow. On a tmpfs the available memory is a
// second limit, because the kernel would kill a guest to get more. It has Stat's time limit.
func DirFreeBytes(dir string) (int64, error) {
	st, err := filesystems.ask(dir, dir)
	free := int64(st.Bavail) * st.Bsize
	if err != nil || st.Type != unix.TMPFS_MAGIC {
		return free, err
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read how much memory is available for %s: %w", dir, err)
	}
	available, err := availableMemory(text)
	return min(free, available), err
}

func availableMemory(meminfo []byte) (int64, error) {
	for line := range bytes.Lines(meminfo) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("/proc/meminfo does not say how much memory is available")
}

var (
	stats       = bounded[unix.Stat_t]{timeout: statTimeout, call: unix.Stat, hung: map[string]int{}}
	filesystems = bounded[unix.Statfs_t]{timeout: statTimeout, call: unix.Statfs, hung: map[string]int{}}
)

// bounded makes every call in its own goroutine, and abandons a call after the timeout. While such
// a call hangs, bounded refuses further calls in its directory, to save a thread and a timeout per
// image.
type bounded[T any] struct {
	timeout time.Duration
	call    func(path string, into *T) error

	mu   sync.Mutex
	hung map[string]int // calls without an answer, by directory
}

func (b *bounded[T]) ask(dir, path string) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	b.mu.Lock()
	hung := b.hung[dir] > 0
	b.mu.Unlock()
	if hung {
		return none, fmt.Errorf("look at %s: %w", path, ErrNoAnswer)
	}
	answered := make(chan answer) // not buffered: the answer is received, or the caller has left
	left := make(chan struct{})
	go func() {
		var a answer
		a.err = b.call(path, &a.value)
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
			return a.value, fmt.Errorf("look at %s: %w", path, a.err)
		}
		return a.value, nil
	case <-bound.C:
		b.count(dir, 1)
		close(left)
		return none, fmt.Errorf("look at %s: %w", path, ErrNoAnswer)
	}
}

func (b *bounded[T]) count(dir string, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hung[dir] += by; b.hung[dir] == 0 {
		delete(b.hung, dir)
	}
}
