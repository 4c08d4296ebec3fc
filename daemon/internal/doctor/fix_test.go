// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	libvirthook "github.com/volferry/volferry/packaging/libvirt-hook"
)

// tree returns every path below a directory with its mode and content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		out[path] = info.Mode().String()
		if !e.IsDir() {
			text, err := os.ReadFile(path)
			out[path] += " " + string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDoctorFixesNothingWhereNothingIsWrong(t *testing.T) {
	d, _ := hookedHost(t, time.Now().Add(time.Hour))
	d.hook(t.Context()) // it records this libvirt
	before := tree(t, filepath.Dir(d.Cfg.StateDir))
	if fixes := d.Fixes(t.Context()); len(fixes) != 0 {
		t.Errorf("fixes %+v", fixes)
	}
	after := tree(t, filepath.Dir(d.Cfg.StateDir))
	for path, was := range before {
		if after[path] != was {
			t.Errorf("%s was %q and is %q", path, was, after[path])
		}
	}
	if len(after) != len(before) {
		t.Errorf("before %d files, after %d", len(before), len(after))
	}
}

func TestDoctorFixesTheDirectoriesOfTheDaemonAndNoOthers(t *testing.T) {
	d, _ := hookedHost(t, time.Now().Add(time.Hour))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Remove(d.Cfg.OverlayDir))
	must(os.Chmod(d.Cfg.SaveDir, 0o755))
	must(os.Chmod(d.Cfg.StateDir, 0o777))
	elsewhere := filepath.Dir(d.Cfg.StateDir)
	must(os.Chmod(elsewhere, 0o777))
	if c := d.directories(); c.Status != "fail" || !strings.Contains(c.Message, d.Cfg.OverlayDir+" is missing") || !strings.Contains(c.Message, d.Cfg.SaveDir) {
		t.Errorf("before: %+v", c)
	}
	fixes := d.Fixes(t.Context())
	if len(fixes) != 3 {
		t.Errorf("fixes %+v, want 3", fixes)
	}
	for _, f := range fixes {
		if f.Status != "fixed" || f.Before == "" || f.Action == "" || f.After == "" {
			t.Errorf("fix %+v", f)
		}
	}
	if c := d.directories(); c.Status != "ok" {
		t.Errorf("after: %+v", c)
	}
	for path, want := range map[string]os.FileMode{d.Cfg.OverlayDir: 0o711, d.Cfg.SaveDir: 0o750, d.Cfg.StateDir: 0o775, elsewhere: 0o777} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has %v, want %04o", path, info.Mode().Perm(), want)
		}
	}
}

func TestDoctorLetsQEMUPassThroughWhatIsTheDaemonsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root to look as another user")
	}
	top, err := os.MkdirTemp("/var/tmp", "volferry-doctor-") //nolint:usetesting // the parent of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	d, fake := hookedHost(t, time.Now().Add(time.Hour))
	d.HV = unprivileged{fake, true}
	d.Cfg.StateDir = filepath.Join(top, "state")
	d.Cfg.OverlayDir = filepath.Join(d.Cfg.StateDir, "overlays")
	if err := os.MkdirAll(d.Cfg.OverlayDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if fixes := d.fixPassage(t.Context()); len(fixes) != 0 {
		t.Errorf("%s is closed, which is not the daemon's: %+v", top, fixes)
	}
	if err := os.Chmod(top, 0o711); err != nil { //nolint:gosec // others are to pass
		t.Fatal(err)
	}
	fixes := d.fixPassage(t.Context())
	if len(fixes) != 2 || fixes[0].Status != "fixed" || !strings.Contains(fixes[1].Action, "chmod 0701 "+d.Cfg.OverlayDir) {
		t.Errorf("fixes %+v", fixes)
	}
	if checks := d.try(hv.ProcessUser{UID: 64055, GID: 64055, Given: true}, place{what: "the overlays", dir: d.Cfg.OverlayDir, status: "fail"}); len(checks) != 0 {
		t.Errorf("and then: %+v", checks)
	}
}

func TestDoctorInstallsTheHookAndHasLibvirtSeeIt(t *testing.T) {
	d, fake := hookedHost(t, time.Now().Add(-time.Hour)) // libvirtd is this process
	reloaded := make(chan os.Signal, 1)
	signal.Notify(reloaded, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(reloaded) })
	asked := make(chan string, 1)
	fake.OnStart = func(id string) error {
		select {
		case <-reloaded:
		default:
			return nil // libvirt has not looked for hooks yet
		}
		guards, err := d.Guards.List()
		if err != nil || guards[id] == "" {
			t.Errorf("the domain of the trial is not guarded: %v, %v", guards, err)
		}
		asked <- id
		return errNotAsked
	}
	older := []byte("#!/bin/sh\n# volferry\nGUARD_DIR=" + d.Cfg.GuardDir() + "\n")
	if err := os.WriteFile(d.Cfg.LibvirtHook, older, 0o644); err != nil {
		t.Fatal(err)
	}
	script := libvirthook.Script
	t.Cleanup(func() { libvirthook.Script = script })
	libvirthook.Script = []byte(strings.Replace(string(libvirthook.Script), "/var/lib/volferry/guards", d.Cfg.GuardDir(), 1))
	fixes := d.Fixes(t.Context())
	if len(fixes) != 2 || fixes[0].Status != "fixed" || fixes[1].Status != "fixed" {
		t.Fatalf("fixes %+v", fixes)
	}
	select {
	case id := <-asked:
		if id != trialID {
			t.Errorf("tried with %s", id)
		}
	default:
		t.Error("the hook was not tried")
	}
	if c := d.hook(t.Context()); c.Status != "ok" || !strings.Contains(c.Message, "the hook refused a test start") {
		t.Errorf("afterwards: %+v", c)
	}
	if left, err := d.Guards.List(); err != nil || len(left) != 0 {
		t.Errorf("guards are left: %v, %v", left, err)
	}
}

func TestDoctorDoesNotReplaceAnotherHook(t *testing.T) {
	d, _ := hookedHost(t, time.Now().Add(time.Hour))
	const theirs = "#!/bin/sh\necho mine\n"
	if err := os.Remove(d.Cfg.LibvirtHook); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Cfg.LibvirtHook, []byte(theirs), 0o644); err != nil {
		t.Fatal(err)
	}
	if fixes := d.fixHook(t.Context()); len(fixes) != 1 || fixes[0].Status != "failed" || !strings.Contains(fixes[0].After, "is another one") {
		t.Errorf("fixes %+v", fixes)
	}
	if text, err := os.ReadFile(d.Cfg.LibvirtHook); err != nil || string(text) != theirs {
		t.Errorf("it has %q now: %v", text, err)
	}
}

func TestAHookThatIsNotAskedIsNoFix(t *testing.T) {
	d, fake := hookedHost(t, time.Now())
	fake.SetAbout(hv.About{}) // no process can be reloaded
	fixes := d.fixHookUnseen(t.Context())
	if len(fixes) != 1 || fixes[0].Status != "failed" || !strings.Contains(fixes[0].After, "has not run the hook") {
		t.Errorf("fixes %+v", fixes)
	}
	if left, err := d.Guards.List(); err != nil || len(left) != 0 {
		t.Errorf("guards are left: %v, %v", left, err)
	}
}
