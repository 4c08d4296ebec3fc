// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestOneVerbAtATimeIsAtWorkOnAVolume(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(t.TempDir(), "at-work")
	script := "#!/bin/sh\nmkdir " + at + " || exit 9\nsleep 0.1\nrmdir " + at + `
echo '{"protocol":1,"volume":{"name":"v"}}'` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "fake"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	r := &Runner{Config: func() (string, map[string]PoolConfig, error) {
		return dir, map[string]PoolConfig{"fast": {"connector": "fake"}}, nil
	}}
	ended := make(chan error)
	for range 3 {
		go func() {
			_, err := r.Run(context.Background(), "fast", Request{Verb: VerbCreate, OpID: "a", Volume: "v", SizeBytes: 512})
			ended <- err
		}()
	}
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestVerbsOnAVolumeHaveTheirTurnsInTheOrderInWhichTheyCame, and an inspection runs after the
// earlier verbs. An abandoned verb takes no turn.
func TestVerbsOnAVolumeHaveTheirTurnsInTheOrderInWhichTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runner{}
		var turns []string
		release := map[string]func(){}
		come := func(ctx context.Context, verb string) {
			go func() {
				free, err := r.turn(ctx, "fast", Request{Verb: verb, Volume: "v"})
				if err != nil {
					verb, free = "no "+verb, func() {}
				}
				turns = append(turns, verb)
				release[verb] = free
			}()
			synctest.Wait()
		}
		want := func(when string, want ...string) {
			synctest.Wait()
			if !slices.Equal(turns, want) {
				t.Errorf("%s: the turns are %v, want %v", when, turns, want)
			}
		}
		givenUp, giveUp := context.WithCancel(t.Context())
		come(t.Context(), VerbCreate)
		come(givenUp, VerbExtend)
		come(t.Context(), VerbDelete)
		come(t.Context(), VerbInspect)
		want("at first", VerbCreate)
		giveUp()
		want("one gives up", VerbCreate, "no "+VerbExtend)
		release[VerbCreate]()
		want("the first has ended", VerbCreate, "no "+VerbExtend, VerbDelete)
		release[VerbDelete]()
		want("all have ended", VerbCreate, "no "+VerbExtend, VerbDelete, VerbInspect)
		if len(r.newest) != 0 {
			t.Errorf("%d volumes have verbs", len(r.newest))
		}
	})
}

// slow is a connector with a create that reports its start, and makes the volume when it may
// continue.
type slow struct {
	*Runner
	dir string
}

func newSlow(t *testing.T) slow {
	t.Helper()
	s := slow{dir: t.TempDir()}
	for _, pipe := range []string{"begun", "go"} {
		if err := unix.Mkfifo(filepath.Join(s.dir, pipe), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\ncd " + s.dir + `
case $(cat) in
*'"volume"'*'"op_id"'*|*'"op_id"'*'"volume"'*) echo $$ >begun; read on <go; touch made ;;
*'"volume"'*) [ -e made ] || exec echo '{"protocol":1,"error":{"code":"not_found","message":"it is not there"}}' ;;
*) exec echo '` + goodPool + `' ;;
esac
echo '{"protocol":1,"volume":{"name":"v"}}'
`
	if err := os.WriteFile(filepath.Join(s.dir, "slow"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s.Runner = slowRunner(s.dir)
	return s
}

func slowRunner(dir string) *Runner {
	return &Runner{Config: func() (string, map[string]PoolConfig, error) {
		return dir, map[string]PoolConfig{"fast": {"connector": "slow"}}, nil
	}}
}

var createV = Request{Verb: VerbCreate, OpID: "a", Volume: "v", SizeBytes: 512}

// begins runs a create, and returns when the program runs. ended has its error.
func (s slow) begins(t *testing.T) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	go func() {
		_, err := s.Run(context.Background(), "fast", createV)
		ended <- err
	}()
	s.pid(t)
	return ended
}

// pid returns the number of the next running program.
func (s slow) pid(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "begun"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func (s slow) goOn(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "go"), []byte("on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNobodyIsToldOfAVolumeWhileAVerbIsAtWorkOnIt: an absence would be wrong a moment later. The
// pool and its other volumes are not affected.
func TestNobodyIsToldOfAVolumeWhileAVerbIsAtWorkOnIt(t *testing.T) {
	s := newSlow(t)
	ended := s.begins(t)
	for _, in := range []Request{{Verb: VerbInspect, Volume: "v"}, {Verb: VerbDelete, OpID: "b", Volume: "v", Identity: "x"}} {
		soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if out, err := s.Run(soon, "fast", in); err == nil || !strings.Contains(err.Error(), "another verb on this volume has not ended") {
			t.Errorf("%s in the middle of a create: %+v, %v", in.Verb, out, err)
		}
		cancel()
	}
	if _, err := s.Run(t.Context(), "fast", Request{Verb: VerbInspect}); err != nil {
		t.Errorf("the pool: %v", err)
	}
	if _, err := s.Run(t.Context(), "fast", Request{Verb: VerbInspect, Volume: "w"}); CodeOf(err) != CodeNotFound {
		t.Errorf("another volume: %v", err)
	}
	s.goOn(t)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), "fast", Request{Verb: VerbInspect, Volume: "v"}); err != nil {
		t.Errorf("it is made: %v", err)
	}
}

// TestTheProgramOfADaemonThatIsKilledIsKilled if no separate program would complete the verb, so
// that the next daemon's program does not meet it.
func TestTheProgramOfADaemonThatIsKilledIsKilled(t *testing.T) {
	const role = "VOLFERRY_TEST_CONNECTOR_DIR"
	if dir := os.Getenv(role); dir != "" {
		_, err := slowRunner(dir).Run(t.Context(), "fast", createV)
		t.Fatal(err)
	}
	s := newSlow(t)
	killed := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	killed.Env = append(os.Environ(), role+"="+s.dir)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	program, err := unix.PidfdOpen(s.pid(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(program) }()
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	exited := []unix.PollFd{{Fd: int32(program), Events: unix.POLLIN}}
	if n, err := unix.Poll(exited, 10_000); err != nil || n != 1 {
		t.Fatalf("the program has outlived its daemon (%v)", err)
	}
	if _, err := s.Run(t.Context(), "fast", Request{Verb: VerbInspect, Volume: "v"}); CodeOf(err) != CodeNotFound {
		t.Errorf("it was made: %v", err)
	}
	ended := s.begins(t)
	s.goOn(t)
	if err := <-ended; err != nil {
		t.Errorf("the next daemon: %v", err)
	}
}
