// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestClosedForEndsWhenTheProcessHasOpenedTheImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "overlay")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	image, err := Identify(path)
	if err != nil {
		t.Fatal(err)
	}
	// Where no processor was free for the first look in time, the answer is 0.
	for range 100 {
		if opensAfterAWhile(t, path, image) > 0 {
			return
		}
	}
	t.Error("the process never had the image closed")
}

// opensAfterAWhile returns how long this process had the image closed.
func opensAfterAWhile(t *testing.T, path string, image Image) time.Duration {
	t.Helper()
	type result struct {
		closed time.Duration
		err    error
	}
	began, ended := time.Now(), make(chan result, 1)
	go func() {
		closed, err := Dir("/proc").ClosedFor(t.Context(), os.Getpid(), image)
		ended <- result{closed, err}
	}()
	select {
	case got := <-ended:
		t.Fatalf("before the process has opened the image: %+v", got)
	case <-time.After(20 * openPoll):
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	opened := time.Since(began)
	got := <-ended
	if got.err != nil || got.closed > opened {
		t.Fatalf("%+v, want a time of at most %s", got, opened)
	}
	if closed, err := Dir("/proc").ClosedFor(t.Context(), os.Getpid(), image); closed != 0 || err != nil {
		t.Errorf("with the image open: %s, %v", closed, err)
	}
	return got.closed
}

func TestClosedForEndsWithItsContextAndWithTheProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dir("/proc").ClosedFor(ctx, os.Getpid(), Image{Ino: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	if _, err := Dir(t.TempDir()).ClosedFor(t.Context(), 42, Image{Ino: 1}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no process: %v", err)
	}
}
