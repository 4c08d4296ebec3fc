// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/process"
)

const openFilesID = "5f6d9a53-0000-4000-8000-000000000001"

// fakeProc makes a /proc without processes.
func fakeProc(t *testing.T) {
	t.Helper()
	old := procDir
	procDir = process.Dir(t.TempDir())
	t.Cleanup(func() { procDir = old })
}

// fakeProcess adds a process that claims to be the domain, and has these files open.
func fakeProcess(t *testing.T, pid int, uid uint32, exe string, open map[string]string) {
	t.Helper()
	dir := filepath.Join(string(procDir), fmt.Sprint(pid))
	for _, d := range []string{"fd", "fdinfo"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := strings.Join([]string{"qemu", "-name", "x", "-uuid", openFilesID, "-S", ""}, "\x00")
	errs := []error{
		os.WriteFile(filepath.Join(dir, "comm"), []byte("qemu-system-x86\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "stat"), fmt.Appendf(nil, "%d (qemu) S 1 7 7 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 1 0 8111 1 2\n", pid), 0o600),
		os.WriteFile(filepath.Join(dir, "cmdline"), []byte(args), 0o600),
		os.WriteFile(filepath.Join(dir, "status"), fmt.Appendf(nil, "Name:\tx\nUid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", uid), 0o600),
		os.Symlink(exe, filepath.Join(dir, "exe")),
	}
	fd := 3
	for path, flags := range open {
		name := fmt.Sprint(fd)
		errs = append(errs,
			os.Symlink(path, filepath.Join(dir, "fd", name)),
			os.WriteFile(filepath.Join(dir, "fdinfo", name), []byte("pos:\t0\nflags:\t"+flags+"\nmnt_id:\t1\n"), 0o600))
		fd++
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

const (
	qemuExe = "/usr/bin/qemu-system-x86_64"
	qemuUID = 64055
	nobody  = 65534
)

// connOfQEMU returns a Conn that is not connected, and knows QEMU's user.
func connOfQEMU() *Conn {
	c := New(Config{Socket: "/nonexistent"})
	c.qemuDefault.Store(&hv.ProcessUser{UID: qemuUID, GID: 107})
	return c
}

func emptyFile(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenFilesComparesInodesAndNotPaths(t *testing.T) {
	src, other := emptyFile(t, "src"), emptyFile(t, "other")
	alias := src + ".alias"
	if err := os.Link(src, alias); err != nil {
		t.Fatal(err)
	}
	for flags, writable := range map[string]bool{"02140000": false, "02140001": true, "02140002": true} {
		fakeProc(t)
		fakeProcess(t, 42, qemuUID, qemuExe, map[string]string{alias: flags, other: "02"})
		files, err := connOfQEMU().OpenFiles(t.Context(), openFilesID, src)
		if err != nil || len(files) != 1 || files[0].Writable != writable {
			t.Errorf("flags %s: OpenFiles = %+v, %v; want one, writable %v", flags, files, err, writable)
		}
	}
}

func TestOpenFilesOfSeveralImagesSayWhichIsWhich(t *testing.T) {
	src, dst, other := emptyFile(t, "src"), emptyFile(t, "dst"), emptyFile(t, "other")
	fakeProc(t)
	fakeProcess(t, 42, qemuUID, qemuExe, map[string]string{src: "02140000", dst: "02140002", other: "02"})
	files, err := connOfQEMU().OpenFiles(t.Context(), openFilesID, dst, src)
	writable := map[string]bool{}
	for _, f := range files {
		writable[f.Path] = f.Writable
	}
	if err != nil || len(files) != 2 || !maps.Equal(writable, map[string]bool{src: false, dst: true}) {
		t.Errorf("OpenFiles = %+v, %v; want dst for writing and src", files, err)
	}
	if _, err := connOfQEMU().OpenFiles(t.Context(), openFilesID, src, src+".gone"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("OpenFiles of a path of nothing: %v", err)
	}
}

// Any user may start a QEMU with the UUID of another user's guest.
func TestAnotherUsersQEMUWithTheUUIDHidesNothing(t *testing.T) {
	src := emptyFile(t, "src")
	for _, pid := range []int{41, 43} { // before and after the true one
		fakeProc(t)
		fakeProcess(t, 42, qemuUID, qemuExe, map[string]string{src: "02"})
		fakeProcess(t, pid, nobody, "/tmp/qemu-mine", nil)
		files, err := connOfQEMU().OpenFiles(t.Context(), openFilesID, src)
		if err != nil || len(files) != 1 || !files[0].Writable {
			t.Errorf("beside process %d: OpenFiles = %+v, %v; want the guest's descriptor", pid, files, err)
		}
	}
}

// An empty result is only correct if the domain's own process was examined.
func TestWithoutTheDomainsProcessWhatIsOpenIsUnknown(t *testing.T) {
	src := emptyFile(t, "src")
	for name, add := range map[string]func(){
		"no process":             func() {},
		"another user's process": func() { fakeProcess(t, 43, nobody, qemuExe, nil) },
		"another program":        func() { fakeProcess(t, 43, qemuUID, "/usr/bin/vim", map[string]string{src: "02"}) },
	} {
		fakeProc(t)
		add()
		// libvirt, which could report that the domain is off, is down.
		if files, err := connOfQEMU().OpenFiles(t.Context(), openFilesID, src); !errors.Is(err, hv.ErrUnavailable) {
			t.Errorf("%s: OpenFiles = %+v, %v; want ErrUnavailable", name, files, err)
		}
	}
}

func TestTheUserOfQEMUIsReadFromWhatLibvirtSays(t *testing.T) {
	const caps = `<capabilities><host><secmodel><model>apparmor</model><doi>0</doi></secmodel>
		<secmodel><model>dac</model><doi>0</doi><baselabel type='kvm'>+64055:+107</baselabel><baselabel type='qemu'>+64055:+107</baselabel></secmodel></host></capabilities>`
	want := hv.ProcessUser{UID: 64055, GID: 107}
	if user, err := userInCapabilities(caps); err != nil || user != want {
		t.Errorf("of the host: %+v, %v", user, err)
	}
	for doc, own := range map[string]bool{
		`<domain><seclabel type='dynamic' model='dac' relabel='yes'><label>+64055:+107</label></seclabel></domain>`: true,
		`<domain><seclabel type='dynamic' model='dac' relabel='yes'/></domain>`:                                     false,
		`<domain><seclabel type='static' model='apparmor'><label>libvirt-x</label></seclabel></domain>`:             false,
		`<domain/>`: false,
	} {
		user, got, _, err := ownUser(doc)
		if err != nil || got != own || own && user != want {
			t.Errorf("%s: %+v, %v, %v", doc, user, got, err)
		}
	}
	if user, _, _, err := ownUser(`<domain><seclabel model='dac'><label>root:+7</label></seclabel></domain>`); err != nil || user != (hv.ProcessUser{GID: 7}) {
		t.Errorf("a user by name: %+v, %v", user, err)
	}
	for _, label := range []string{"", "no-such-user:root", "root", "+64055"} {
		if user, err := parseDACLabel(label); err == nil {
			t.Errorf("label %q is %+v", label, user)
		}
	}
}

func TestLibvirtGivesTheImagesOfADomainUnlessItsLabelForbidsThat(t *testing.T) {
	for doc, want := range map[string]bool{
		`<domain/>`: true, `<domain><seclabel type='static' model='apparmor' relabel='no'/></domain>`: true,
		`<domain><seclabel type='none' model='dac' relabel='no'/></domain>`: false,
	} {
		if _, _, relabels, err := ownUser(doc); err != nil || relabels != want {
			t.Errorf("%s: %v, %v", doc, relabels, err)
		}
	}
}

// unanswered is a helper that does not answer.
type unanswered struct{ Processes }

func (unanswered) Claims(context.Context, string, []process.Image) ([]process.Claim, error) {
	return nil, errors.New("no answer")
}

func TestAnInstanceWhoseProcessCannotBeAskedForIsNotOff(t *testing.T) {
	c := New(Config{Processes: unanswered{}})
	if files, err := c.OpenFiles(t.Context(), openFilesID); !errors.Is(err, hv.ErrUnavailable) || files != nil {
		t.Errorf("open files: %v, %v, want ErrUnavailable", files, err)
	}
	if p, err := c.Process(t.Context(), openFilesID, "vda"); !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("process: %v, %v, want ErrUnavailable", p, err)
	}
}
