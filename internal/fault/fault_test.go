// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// childEnv makes the test binary a process that passes points.
const childEnv = "VOLFERRY_TEST_FAULT_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		for _, name := range []string{"op.one.after_do", "op.two.after_do", "op.one.after_do"} {
			Point(name)
		}
		os.Exit(0) //nolint:forbidigo // this is the main of a child process
	}
	os.Exit(m.Run()) //nolint:forbidigo // as every TestMain
}

// runChild returns the signal that ended the child, 0 if it finished, and the log of points.
func runChild(t *testing.T, spec string) (syscall.Signal, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "points")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1", EnvPoints+"="+spec, EnvLog+"="+log)
	child.Stderr = os.Stderr
	err := child.Run()
	passed, readErr := os.ReadFile(log)
	if readErr != nil {
		t.Fatal(readErr)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok {
			return ws.Signal(), string(passed)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(passed)
}

func TestProcessDiesAtItsPointAndPass(t *testing.T) {
	const one, two = "op.one.after_do\n", "op.two.after_do\n"
	for _, c := range []struct {
		spec   string
		signal syscall.Signal
		passed string
	}{
		{"", 0, one + two + one},
		{"op.one.after_do=kill", syscall.SIGKILL, one},
		{"op.one.after_do=kill@2", syscall.SIGKILL, one + two + one},
		{"op.one.after_do=kill@3,op.two.after_do=kill", syscall.SIGKILL, one + two},
		{"op.three.after_do=kill", 0, one + two + one},
	} {
		signal, passed := runChild(t, c.spec)
		if signal != c.signal {
			t.Errorf("%q: ended by %v, want %v", c.spec, signal, c.signal)
		}
		if diff := cmp.Diff(c.passed, passed); diff != "" {
			t.Errorf("%q: points passed (-want +got)\n%s", c.spec, diff)
		}
	}
}

func TestWithoutVariablesNothingIsArmed(t *testing.T) {
	if arm("", "") != nil {
		t.Error("armed")
	}
}

func TestAMalformedSpecIsAnError(t *testing.T) {
	for _, spec := range []string{"a", "a=", "=kill", "a=error", "a=kill@", "a=kill@0", "a=kill@x"} {
		if _, err := parse(spec); err == nil {
			t.Errorf("%q is taken", spec)
		}
	}
}
