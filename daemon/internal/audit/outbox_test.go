// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/audit"
	"github.com/volferry/volferry/internal/api"
)

// trail is a registry that may not answer.
type trail struct {
	mu   sync.Mutex
	away error
	got  []string
}

func (r *trail) post(_ context.Context, key string, e api.EventPost) (api.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away != nil {
		return api.Event{}, r.away
	}
	r.got = append(r.got, fmt.Sprintf("%s %s %s %s", key, e.What, e.Object, e.Result))
	return api.Event{}, nil
}

func (r *trail) setAway(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = err
}

func (r *trail) want(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.got, want) {
		t.Errorf("%s the trail has %q, want %q", when, r.got, want)
	}
}

// running returns an outbox in dir that runs until stop is called.
func running(t *testing.T, dir string, r *trail) (o *audit.Outbox, stop func()) {
	t.Helper()
	o = audit.NewOutbox(dir, r.post, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	return o, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func begin(t *testing.T, o *audit.Outbox, id string) *audit.Entry {
	t.Helper()
	n, err := o.Begin(api.EventPost{At: time.Now(), What: "instance.stop", Object: "instance/" + id, OpID: id})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) //nolint:forbidigo // fake time
	return n
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestAnEventIsPostedOnceItsRequestIsTakenAndNotIfItIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r trail
		o, stop := running(t, t.TempDir(), &r)
		taken, refused := begin(t, o, "a"), begin(t, o, "b")
		r.want(t, "before the answers")
		check(t, refused.Drop(), taken.Done("instance/1", ""))
		r.want(t, "after the answers", "a.asked instance.stop instance/1 ")
		stop()
		_, stop = running(t, t.TempDir(), &r)
		defer stop()
		r.want(t, "after a start", "a.asked instance.stop instance/1 ")
	})
}

// The registry does not answer, and the daemon restarts in the middle of a request: no event is
// lost, and the order is kept.
func TestEventsWaitForTheRegistryAndOutliveTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r trail
		dir := t.TempDir()
		r.setAway(api.Errorf(api.CodeRegistryUnavailable, "away"))
		o, stop := running(t, dir, &r)
		check(t, begin(t, o, "z").Done("instance/1", ""), begin(t, o, "a").Done("instance/2", "guest_busy"))
		begin(t, o, "cut off")
		stop()
		r.want(t, "while it is away")
		_, stop = running(t, dir, &r)
		defer stop()
		r.setAway(nil)
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		r.want(t, "once it is back", "z.asked instance.stop instance/1 ", "a.asked instance.stop instance/2 guest_busy", "cut off.asked instance.stop instance/cut off ")
	})
}

// An event that the registry always refuses does not block later events.
func TestAnEventThatIsNeverTakenHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []api.Code{api.CodeInvalidArgument, api.CodeIdempotencyMismatch} {
			var r trail
			o, stop := running(t, t.TempDir(), &r)
			r.setAway(api.Errorf(code, "no"))
			check(t, begin(t, o, "a").Done("instance/1", ""))
			synctest.Wait()
			r.setAway(nil)
			check(t, begin(t, o, "b").Done("instance/2", ""))
			r.want(t, string(code), "b.asked instance.stop instance/2 ")
			stop()
		}
	})
}

// A long outage of the registry does not fill the disk.
func TestWhatIsKeptIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 999 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".json")), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := audit.NewOutbox(dir, (&trail{}).post, slog.New(slog.DiscardHandler))
	if _, err := o.Begin(api.EventPost{OpID: "the last"}); err != nil {
		t.Errorf("number 1000: %v", err)
	}
	n, err := o.Begin(api.EventPost{OpID: "one more"})
	if err == nil {
		t.Error("number 1001 was kept")
	}
	check(t, n.Done("instance/1", ""))
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1000 {
		t.Errorf("%d files, %v, want 1000", len(files), err)
	}
}

func TestAnEventOfNoRequestIsPosted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r trail
		o, stop := running(t, t.TempDir(), &r)
		defer stop()
		o.Note(api.EventPost{What: "guest.resume", Object: "instance/a", OpID: "1"})
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if want := []string{"1.asked guest.resume instance/a "}; !slices.Equal(r.got, want) {
			t.Errorf("posted %q, want %q", r.got, want)
		}
	})
}
