// SPDX-License-Identifier: Apache-2.0

package location

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// hanging returns a stat that hangs for everything in /dead until back is called.
func hanging(calls *atomic.Int32) (b *bounded[unix.Stat_t], back func()) {
	server := make(chan struct{})
	b = &bounded[unix.Stat_t]{timeout: statTimeout, hung: map[string]int{}, call: func(path string, into *unix.Stat_t) error {
		calls.Add(1)
		if strings.HasPrefix(path, "/dead/") {
			<-server
		}
		into.Ino = 7
		return nil
	}}
	return b, func() { close(server) }
}

func TestAFilesystemThatDoesNotAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		b, back := hanging(&calls)
		began := time.Now()
		if _, err := b.ask("/dead", "/dead/a.raw"); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("got %v, want ErrNoAnswer", err)
		}
		if took := time.Since(began); took != statTimeout {
			t.Errorf("it took %v, want %v", took, statTimeout)
		}
		// The other images of the pool cost neither time nor another thread.
		for range 100 {
			if _, err := b.ask("/dead", "/dead/b.raw"); !errors.Is(err, ErrNoAnswer) {
				t.Errorf("got %v, want ErrNoAnswer", err)
			}
		}
		if took := time.Since(began); took != statTimeout || calls.Load() != 1 {
			t.Errorf("%d calls took %v, want one", calls.Load(), took)
		}
		if st, err := b.ask("/local", "/local/c.raw"); err != nil || st.Ino != 7 {
			t.Errorf("an image elsewhere: inode %d, %v", st.Ino, err)
		}
		back()
		synctest.Wait()
		if st, err := b.ask("/dead", "/dead/a.raw"); err != nil || st.Ino != 7 {
			t.Errorf("once the server is back: inode %d, %v", st.Ino, err)
		}
	})
}

func TestStatSaysWhatIsThere(t *testing.T) {
	if _, err := Stat(t.TempDir() + "/none"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v, want ENOENT", err)
	}
	if st, err := Stat("/dev/null"); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		t.Errorf("/dev/null has mode %o, %v", st.Mode, err)
	}
}
