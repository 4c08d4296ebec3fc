// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/fulldisk"
)

// numbered returns volume n of a host with many.
func numbered(n int) api.VolumeRegister {
	return api.VolumeRegister{
		ID: id(volumeKind, n), Name: fmt.Sprint("v", n), Status: api.VolumeAvailable, Host: "a", Location: at(fmt.Sprint("/fast/", n)),
	}
}

func register(t *testing.T, s *Store, n int) error {
	t.Helper()
	return second(s.Volumes.Register(t.Context(), Call{Who: "test", Key: fmt.Sprint("key-", n)}, numbered(n)))
}

// fill registers volumes from first on until one is refused, and returns its number and the
// refusal.
func fill(t *testing.T, s *Store, first int) (int, error) {
	t.Helper()
	for n := first; n < first+10_000; n++ {
		if err := register(t, s, n); err != nil {
			return n, err
		}
	}
	t.Fatal("10,000 volumes found their place")
	return 0, nil
}

// wantWhole requires the volumes before n and an intact trail.
func wantWhole(t *testing.T, s *Store, n int) {
	t.Helper()
	var volumes, answers int
	if err := s.sqlite.Read.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM volumes), (SELECT count(*) FROM idempotency)").Scan(&volumes, &answers); err != nil {
		t.Fatal(err)
	}
	if volumes != n || answers != n {
		t.Errorf("volumes = %d, answers = %d, want the %d that were acknowledged", volumes, answers, n)
	}
	if events := must(s.Trail.Verify(t.Context()))(t); events != int64(n)+1 {
		t.Errorf("events = %d, want one per volume and one for the host", events)
	}
}

func TestAFullDiskRefusesChangesAndWorksOnWhenThereIsSpace(t *testing.T) {
	dir := fulldisk.Disk(t, 3)
	path, ballast := filepath.Join(dir, "registry.db"), filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := must(Open(t.Context(), path, Options{}))(t)
	must(s.Reports.Receive(t.Context(), nobody, reportOfFast()))(t)
	n, err := fill(t, s, 0)
	wantCode(t, err, api.CodeRegistryUnavailable, "full")
	wantCode(t, register(t, s, n), api.CodeRegistryUnavailable, "nothing was changed")
	wantWhole(t, s, n)
	if err := s.Close(); err != nil {
		t.Logf("closing on a full disk: %v", err) // it may have tried a checkpoint
	}

	// Stored changes stay, whether the registry can start on a full disk or not.
	if s, err := Open(t.Context(), path, Options{}); err == nil {
		wantWhole(t, s, n)
		if err := s.Close(); err != nil {
			t.Logf("closing on a full disk: %v", err)
		}
	} else if !strings.Contains(err.Error(), path) {
		t.Errorf("the error does not say which file: %v", err)
	}

	if err := os.Truncate(ballast, 1<<20); err != nil {
		t.Fatal(err)
	}
	s = must(Open(t.Context(), path, Options{}))(t)
	wantWhole(t, s, n)
	if n, err = fill(t, s, n); api.CodeOf(err) != api.CodeRegistryUnavailable {
		t.Fatal(err)
	}
	// The same without a restart.
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := register(t, s, n); err != nil {
		t.Errorf("with space again: %v", err)
	}
	wantWhole(t, s, n+1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// limitEnv makes this test binary a registry with a limit on the size of its files.
const limitEnv = "VOLFERRY_TEST_LIMITED"

// runLimited does not return in the limited process. That prints the numbers of volumes
// acknowledged before the limit and after its removal.
func runLimited() {
	path := os.Getenv(limitEnv)
	if path == "" {
		return
	}
	signal.Ignore(unix.SIGXFSZ)
	if err := limited(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func limited(path string) error {
	ctx := context.Background()
	s, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	if _, err := s.Reports.Receive(ctx, nobody, reportOfFast()); err != nil {
		return err
	}
	limit := func(bytes uint64) error {
		return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY})
	}
	add := func(n int) error {
		_, err := s.Volumes.Register(ctx, Call{Key: fmt.Sprint("key-", n)}, numbered(n))
		return err
	}
	if err := limit(1 << 20); err != nil {
		return err
	}
	n := 0
	for err == nil && n < 10_000 {
		if err = add(n); err == nil {
			n++
		}
	}
	fmt.Fprintln(os.Stdout, n, api.CodeOf(err), err)
	if err := limit(unix.RLIM_INFINITY); err != nil {
		return err
	}
	if err := add(n); err != nil {
		return err
	}
	return s.Close()
}

func TestAWriteErrorRefusesChangesAndLosesNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), limitEnv+"="+path)
	out, err := child.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var n int
	var code, rest string
	if _, err := fmt.Sscan(string(out), &n, &code, &rest); err != nil || n == 0 || n >= 10_000 || code != string(api.CodeRegistryUnavailable) {
		t.Fatalf("the limited registry said %q (%v)", out, err)
	}
	wantWhole(t, openStore(t, path), n+1)
}

// closedRegistry returns the path of a registry with many volumes.
func closedRegistry(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.db")
	s := must(Open(t.Context(), path, Options{}))(t)
	must(s.Reports.Receive(t.Context(), nobody, reportOfFast()))(t)
	for n := range 200 {
		if err := register(t, s, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestADamagedFileIsRefusedAndLeftAsItIs(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"flipped bytes in the middle": func(b []byte) []byte {
			for i := len(b) / 2; i < len(b)/2+20_000; i++ {
				b[i] ^= 0xff
			}
			return b
		},
		"zeros in the middle": func(b []byte) []byte { clear(b[len(b)/2 : len(b)/2+20_000]); return b },
		"truncated":           func(b []byte) []byte { return b[:len(b)/2] },
		"cut in a page":       func(b []byte) []byte { return b[:len(b)-1000] },
		"a flipped header":    func(b []byte) []byte { b[0] ^= 0xff; return b },
		"no database":         func([]byte) []byte { return bytes.Repeat([]byte("no database "), 1000) },
		"a few bytes":         func([]byte) []byte { return []byte("hello") },
	} {
		t.Run(name, func(t *testing.T) {
			path := closedRegistry(t)
			b := must(os.ReadFile(path))(t)
			damaged := damage(b)
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), path, Options{})
			if err == nil {
				err = s.Close()
				t.Fatalf("the registry started (close: %v)", err)
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("error = %v, want the file and what to do", err)
			}
			if !bytes.Equal(damaged, must(os.ReadFile(path))(t)) {
				t.Error("the damaged file was changed")
			}
		})
	}
}

func TestALogThatIsEmptyOrTornIsNoDamage(t *testing.T) {
	for name, log := range map[string][]byte{
		"empty":   {},
		"garbage": bytes.Repeat([]byte("garbage "), 2000),
	} {
		t.Run(name, func(t *testing.T) {
			path := closedRegistry(t)
			if err := os.WriteFile(path+"-wal", log, 0o600); err != nil {
				t.Fatal(err)
			}
			s := openStore(t, path)
			wantWhole(t, s, 200)
			if err := register(t, s, 200); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDamageThatIsFoundLaterSinksTheChange(t *testing.T) {
	path := closedRegistry(t)
	s := openStore(t, path)
	var page, pageSize int
	if err := s.sqlite.Read.QueryRowContext(t.Context(), "SELECT rootpage, (SELECT page_size FROM pragma_page_size()) FROM sqlite_schema WHERE name = 'volumes'").Scan(&page, &pageSize); err != nil {
		t.Fatal(err)
	}
	f := must(os.OpenFile(path, os.O_RDWR, 0))(t)
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xff}, pageSize), int64(page-1)*int64(pageSize)); err != nil {
		t.Fatal(err)
	}
	before := s.Marks.Now()
	_, err := s.Volumes.Update(t.Context(), nobody, id(volumeKind, 7), api.VolumeUpdate{})
	wantCode(t, err, api.CodeRegistryUnavailable, "malformed")
	if s.Marks.Now() != before {
		t.Errorf("mark = %+v, want %+v", s.Marks.Now(), before)
	}
	if err := post(t.Context(), s, nobody); err != nil {
		t.Errorf("a change that needs nothing of the damaged part: %v", err)
	}
	_, err = s.Volumes.Get(t.Context(), id(volumeKind, 7), Viewer{})
	wantCode(t, err, api.CodeRegistryUnavailable, "malformed")
}
