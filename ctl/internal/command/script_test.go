// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/volferry/volferry/ctl/internal/session"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){session.Program: func() { os.Exit(Main()) }})
}

type fakeKey struct{}

// TestScripts runs the program against a fake daemon. Besides the usual commands, scripts have:
// fake FILE (add routes, start the daemon), stop, start, exits STATUS PROGRAM ARGS..., await TEXT
// (a request that contains it has arrived) and sent PATTERN (over all requests).
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			f := newFake(filepath.Join(env.WorkDir, "s"))
			env.Values[fakeKey{}] = f
			env.Setenv("VOLFERRY_SOCKET", f.socket)
			env.Defer(f.stop)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"fake":  cmdFake,
			"stop":  func(ts *testscript.TestScript, _ bool, _ []string) { fakeOf(ts).stop() },
			"start": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(fakeOf(ts).start()) },
			"exits": cmdExits,
			"await": cmdAwait,
			"sent":  cmdSent,
		},
	})
}

func fakeOf(ts *testscript.TestScript) *fake {
	f, ok := ts.Value(fakeKey{}).(*fake)
	if !ok {
		ts.Fatalf("there is no fake")
	}
	return f
}

func cmdFake(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(fakeOf(ts).script(ts.ReadFile(args[0])))
	ts.Check(fakeOf(ts).start())
}

func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("run: %v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status is %d, want %d; stderr:\n%s", got, want, ts.ReadFile("stderr"))
	}
}

func cmdAwait(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ts.Check(fakeOf(ts).await(ctx, args[0]))
}

func cmdSent(ts *testscript.TestScript, neg bool, args []string) {
	log := fakeOf(ts).sent()
	if regexp.MustCompile("(?m)"+args[0]).MatchString(log) == neg {
		ts.Fatalf("sent %s: want match %v; requests were:\n%s", args[0], !neg, log)
	}
}
