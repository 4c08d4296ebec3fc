// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program writes a shell script that is a connector.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

const goodPool = `{"protocol":1,"pool":{"directory":"/dev/fake","capacity_bytes":2,"free_bytes":1,"granularity_bytes":512,"verbs":["inspect","create","delete"]}}`

func TestAProgramIsAskedOnStdinAndAnswersOnStdout(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	path := program(t, "cat >"+asked+"; env >"+asked+".env; echo '"+goodPool+"'")
	out, err := Run(t.Context(), path, Request{Verb: VerbInspect, Pool: "fast", Options: map[string]string{"vg": "a"}})
	if err != nil || out.Pool == nil || out.Pool.Directory != "/dev/fake" || out.Pool.Can(VerbExtend) {
		t.Errorf("it says %+v, %v", out.Pool, err)
	}
	text, err := os.ReadFile(asked)
	if want := `{"protocol":1,"verb":"inspect","pool":"fast","options":{"vg":"a"}}`; err != nil || string(text) != want {
		t.Errorf("it was asked %s (%v), want %s", text, err, want)
	}
	env, err := os.ReadFile(asked + ".env")
	if err != nil || strings.Contains(string(env), "HOME=") || !strings.Contains(string(env), "LC_ALL=C") {
		t.Errorf("its environment is %s (%v)", env, err)
	}
}

func TestAnErrorOfAConnectorHasItsCode(t *testing.T) {
	for _, code := range Codes {
		path := program(t, `echo '{"protocol":1,"error":{"code":"`+code+`","message":"no"}}'`)
		if _, err := Run(t.Context(), path, Request{Verb: VerbDelete, Volume: "v"}); CodeOf(err) != code || err.Error() != "no" {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestAProgramThatBreaksTheProtocolIsNotBelieved: its request may have been done.
func TestAProgramThatBreaksTheProtocolIsNotBelieved(t *testing.T) {
	for what, c := range map[string]struct{ script, says string }{
		"it dies":                     {"echo out of order >&2; exit 3", "exit status 3: out of order"},
		"it is killed":                {"kill -9 $$", "killed"},
		"it answers, and dies":        {"echo '" + goodPool + "'; exit 1", "exit status 1"},
		"it says nothing":             {"exit 0", "no JSON object"},
		"it talks":                    {"echo the pool is fine", "no JSON object"},
		"it says more":                {"echo '" + goodPool + "'; echo '{}'", "behind the answer is more"},
		"it says too much":            {"head -c 70000 /dev/zero", "more than 65536 bytes"},
		"it is of another time":       {`echo '{"protocol":2,"pool":{}}'`, "protocol 2, want 1"},
		"it answers something else":   {`echo '{"protocol":1,"volume":{}}'`, `neither "pool" nor "error"`},
		"it has a code of its own":    {`echo '{"protocol":1,"error":{"code":"odd","message":"x"}}'`, `"odd", which there is not`},
		"it is empty":                 {"", "no JSON object"},
		"it closes stdout and stays":  {"exec >&-; exec sleep 60", "did not end in time"},
		"it does not end":             {"sleep 60", "did not end in time"},
		"it does not want to end":     {"trap '' TERM; while :; do sleep 0.01; done", "did not end in time"},
		"it leaves something that is": {"sleep 60 & echo '" + goodPool + "'", ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, err := run(t.Context(), program(t, c.script), Request{Protocol: Protocol, Verb: VerbInspect}, time.Second, 100*time.Millisecond)
			if c.says == "" {
				if err != nil {
					t.Errorf("what it has started keeps its answer from coming: %v", err)
				}
				return
			}
			var broken *BrokenError
			if !errors.As(err, &broken) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want a BrokenError with %q", err, c.says)
			}
		})
	}
}

// TestNothingOfAProgramOutlivesIt, so that the next verb meets no leftover process.
func TestNothingOfAProgramOutlivesIt(t *testing.T) {
	const soon = 200 * time.Millisecond
	givenUp, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for what, c := range map[string]struct {
		ctx     context.Context
		timeout time.Duration
	}{"its time is over": {t.Context(), soon}, "its caller gives up": {givenUp, time.Minute}} {
		alive := filepath.Join(t.TempDir(), "alive")
		if err := os.WriteFile(alive, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		path := program(t, "(trap '' TERM; exec 9<"+alive+"; exec sleep 60) & sleep 60")
		if _, err := run(c.ctx, path, Request{Protocol: Protocol, Verb: VerbInspect}, c.timeout, 100*time.Millisecond); err == nil {
			t.Fatal("it has ended by itself")
		}
		procs, err := filepath.Glob("/proc/[0-9]*/fd/9")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range procs {
			if to, err := os.Readlink(fd); err == nil && to == alive {
				t.Errorf("%s: %s has what a child of the program has opened", what, fd)
			}
		}
	}
}

func TestAProgramThatOthersCouldReplaceIsNotRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root to make what belongs to others")
	}
	const another = 12345
	for what, c := range map[string]struct {
		change func(t *testing.T, dir, path string) error
		says   string
	}{
		"it is well":                        {func(*testing.T, string, string) error { return nil }, ""},
		"others may write to it":            {func(_ *testing.T, _, path string) error { return os.Chmod(path, 0o775) }, "chmod go-w"},
		"it is another's":                   {func(_ *testing.T, _, path string) error { return os.Chown(path, another, 0) }, "belongs to user 12345"},
		"others may write in its directory": {func(_ *testing.T, dir, _ string) error { return os.Chmod(dir, 0o777) }, "chmod go-w"},
		"its directory is another's":        {func(_ *testing.T, dir, _ string) error { return os.Chown(dir, another, 0) }, "belongs to user 12345"},
		"it is no program":                  {func(_ *testing.T, _, path string) error { return os.Chmod(path, 0o644) }, "is no program"},
		"it is a directory": {func(_ *testing.T, _, path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
		}, "is no program"},
		"it is gone": {func(_ *testing.T, _, path string) error { return os.Remove(path) }, "connectors are installed in"},
		"it is a link to what others may write to": {func(t *testing.T, _, path string) error {
			real := filepath.Join(t.TempDir(), "real")
			return errors.Join(os.WriteFile(real, nil, 0o755), os.Chmod(real, 0o777), os.Remove(path), os.Symlink(real, path))
		}, "chmod go-w"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "connectors")
			path := filepath.Join(dir, "fake")
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(path, nil, 0o755), c.change(t, dir, path)); err != nil {
				t.Fatal(err)
			}
			_, err := Find(dir, "fake")
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
	if _, err := Find(t.TempDir(), "../fake"); err == nil {
		t.Error("a path is a name")
	}
}

func TestARunnerRunsNothingThatItsConfigurationDoesNotName(t *testing.T) {
	r := &Runner{Config: func() (string, map[string]PoolConfig, error) {
		return t.TempDir(), map[string]PoolConfig{"fast": {"connector": "fake", "vg": "a"}}, nil
	}}
	for what, c := range map[string]struct {
		pool string
		in   Request
		says string
	}{
		"another pool":       {"slow", Request{Verb: VerbInspect}, "no pool"},
		"a path":             {"fast", Request{Verb: VerbInspect, Volume: "../x"}, "no name of a volume"},
		"an option":          {"fast", Request{Verb: VerbInspect, Volume: "--force"}, "no name of a volume"},
		"no op":              {"fast", Request{Verb: VerbCreate, Volume: "v", SizeBytes: 1}, "needs an op_id"},
		"any device":         {"fast", Request{Verb: VerbDelete, Volume: "v", OpID: "a"}, "needs an identity"},
		"the whole pool":     {"fast", Request{Verb: VerbDelete, OpID: "a", Identity: "b"}, "needs a volume"},
		"a verb of its own":  {"fast", Request{Verb: "format", Volume: "v"}, "no verb"},
		"a missing program":  {"fast", Request{Verb: VerbInspect}, "connectors are installed in"},
		"a size of nothing":  {"fast", Request{Verb: VerbExtend, Volume: "v", OpID: "a", Identity: "b"}, "needs a size_bytes"},
		"no source":          {"fast", Request{Verb: VerbCopy, Volume: "v", OpID: "a", Identity: "b", LengthBytes: 1}, "needs a source"},
		"a source as path":   {"fast", Request{Verb: VerbCopy, Volume: "v", OpID: "a", Identity: "b", LengthBytes: 1, Source: &Source{Volume: "../x", Identity: "c", SizeBytes: 1}}, "no name of a volume"},
		"itself as source":   {"fast", Request{Verb: VerbCopy, Volume: "v", OpID: "a", Identity: "b", LengthBytes: 1, Source: &Source{Volume: "v", Identity: "b", SizeBytes: 1}}, "the volume itself"},
		"more than there is": {"fast", Request{Verb: VerbCopy, Volume: "v", OpID: "a", Identity: "b", OffsetBytes: 1, LengthBytes: 1, Source: &Source{Volume: "x", Identity: "c", SizeBytes: 1}}, "there are no"},
		"a pool of no words": {"", Request{Verb: VerbInspect}, "no pool"},
	} {
		if _, err := r.Run(t.Context(), c.pool, c.in); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", what, err, c.says)
		}
	}
}

// TestAPoolThatIsNotSwitchedOnDoesNotSayThatItCopies, but an earlier request may still be repeated.
func TestAPoolThatIsNotSwitchedOnDoesNotSayThatItCopies(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\ncase $(cat) in\n*inspect*) echo '" + strings.Replace(goodPool, `"delete"`, `"delete","copy"`, 1) + "' ;;\n*) echo '{\"protocol\":1,\"copied_to_bytes\":512}' ;;\nesac\n"
	if err := os.WriteFile(filepath.Join(dir, "fake"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []PoolConfig{{"connector": "fake"}, {"connector": "fake", "copy": "off"}, {"connector": "fake", "copy": "on"}} {
		r := &Runner{Config: func() (string, map[string]PoolConfig, error) { return dir, map[string]PoolConfig{"fast": c}, nil }}
		out, err := r.Run(t.Context(), "fast", Request{Verb: VerbInspect})
		if err != nil || out.Pool.Can(VerbCopy) != (c["copy"] == "on") || !out.Pool.Can(VerbDelete) {
			t.Errorf("with %v it says %+v, %v", c, out.Pool, err)
		}
		in := Request{Verb: VerbCopy, Volume: "v", OpID: "a", Identity: "b", LengthBytes: 512, Source: &Source{Volume: "x", Identity: "c", SizeBytes: 512}}
		if out, err := r.Run(t.Context(), "fast", in); err != nil || out.CopiedToBytes != 512 {
			t.Errorf("with %v it has copied to %d, %v", c, out.CopiedToBytes, err)
		}
		in.OffsetBytes, in.Source.SizeBytes = 512, 4096
		if _, err := r.Run(t.Context(), "fast", in); err == nil {
			t.Error("it has copied nothing of what it was asked for, and is believed")
		}
	}
}

func TestPoolsOfAConfigurationThatCouldNotBeAreRefused(t *testing.T) {
	for what, pools := range map[string]map[string]PoolConfig{
		"no connector":        {"fast": {"vg": "a"}},
		"a path":              {"fast": {"connector": "/bin/sh"}},
		"a path upwards":      {"fast": {"connector": ".."}},
		"a pool with a slash": {"a/b": {"connector": "lvm"}},
		"a pool of no name":   {"": {"connector": "lvm"}},
		"another copy":        {"fast": {"connector": "lvm", "copy": "yes"}},
	} {
		if err := CheckPools(pools); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	good := map[string]PoolConfig{"fast": {"connector": "lvm", "vg": "a", "copy": "on"}}
	if err := CheckPools(good); err != nil {
		t.Error(err)
	}
	if o := good["fast"].Options(); len(o) != 1 || o["vg"] != "a" {
		t.Errorf("the connector gets %v", o)
	}
}
