// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// confinedVariable is set on a machine where the kernel confines guests.
const confinedVariable = "VOLFERRY_LAB_CONFINED"

// Confined reports whether the kernel of this machine confines guests. libvirtd then runs as its
// package has it.
func Confined() bool { return os.Getenv(confinedVariable) != "" }

// RequireConfined skips the test unless the kernel confines the guests of this machine.
func RequireConfined(tb testing.TB) {
	tb.Helper()
	if !Confined() {
		tb.Skip("SKIPPED: the kernel does not confine the guests here; make test-confined makes such a machine")
	}
}

// RequireAppArmor skips the test unless AppArmor confines the guests of this machine.
func RequireAppArmor(tb testing.TB) { requireModule(tb, "apparmor", "AppArmor") }

// RequireSELinux skips the test unless SELinux confines the guests of this machine.
func RequireSELinux(tb testing.TB) { requireModule(tb, "selinux", "SELinux") }

func requireModule(tb testing.TB, module, name string) {
	tb.Helper()
	if os.Getenv(confinedVariable) != module {
		tb.Skipf("SKIPPED: %s does not confine the guests here; make test-confined makes such a machine", name)
	}
}

// labelLike gives a directory, with all in it, the label of SELinux that another directory has.
// Files that are made there later get the label, too.
func labelLike(dir, other string) error {
	if !Confined() {
		return nil
	}
	const attribute = "security.selinux"
	label := make([]byte, 256)
	n, err := unix.Lgetxattr(other, attribute, label)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil // the kernel has another security module
	}
	if err != nil {
		return fmt.Errorf("read the label of %s: %w", other, err)
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = unix.Lsetxattr(path, attribute, label[:n], 0)
		}
		if err != nil {
			return fmt.Errorf("label %s: %w", path, err)
		}
		return nil
	})
}

// NothingDenied fails the test if the kernel's security module denies something to any program
// before the test ends. It does nothing in a lab that is not Confined.
func NothingDenied(tb testing.TB) {
	tb.Helper()
	if !Confined() {
		return
	}
	log, err := openKernelLog()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		defer log.close()
		denials, err := log.denials()
		if err != nil {
			tb.Error(err)
		}
		if len(denials) > 0 {
			tb.Errorf("the kernel has denied:\n%s", strings.Join(denials, "\n"))
		}
	})
}

// controlProgram is the name of a program that is denied something on purpose.
const controlProgram = "denied-control"

// DeniedTo reads a file as a process with an AppArmor profile would, which must fail, and returns
// what the kernel logs of it. NothingDenied does not count it.
func DeniedTo(tb testing.TB, profile, path string) []string {
	tb.Helper()
	log, err := openKernelLog()
	if err != nil {
		tb.Fatal(err)
	}
	defer log.close()
	program := filepath.Join(tb.TempDir(), controlProgram)
	if err := os.Symlink("/bin/cat", program); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.CommandContext(tb.Context(), "aa-exec", "-p", profile, "--", program, path).CombinedOutput(); err == nil {
		tb.Fatalf("a process with the profile %s reads %s: %s", profile, path, out)
	}
	lines, err := log.lines()
	if err != nil {
		tb.Fatal(err)
	}
	return slices.DeleteFunc(lines, func(line string) bool {
		return !isDenial(line) || !strings.Contains(line, controlProgram) || !strings.Contains(line, path)
	})
}

// kernelLog is the kernel's log from some time on.
type kernelLog struct{ fd int }

// openKernelLog opens the log at its end.
func openKernelLog() (*kernelLog, error) {
	const path = "/dev/kmsg"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		return nil, errors.Join(fmt.Errorf("find the end of %s: %w", path, err), unix.Close(fd))
	}
	return &kernelLog{fd}, nil
}

func (l *kernelLog) close() { _ = unix.Close(l.fd) } // it was only read

// denials are the lines about what AppArmor or SELinux has denied to other programs than the
// control, since the log was opened or read last.
func (l *kernelLog) denials() ([]string, error) {
	lines, err := l.lines()
	return slices.DeleteFunc(lines, func(line string) bool {
		return !isDenial(line) || strings.Contains(line, `comm="`+controlProgram+`"`)
	}), err
}

// lines are the lines since the log was opened or read last. It fails if the kernel has dropped
// lines since.
func (l *kernelLog) lines() ([]string, error) {
	var lines []string
	buffer := make([]byte, 8<<10) // a record of the kernel is not larger
	for {
		n, err := unix.Read(l.fd, buffer)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return lines, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return lines, fmt.Errorf("read the kernel's log: %w", err)
		}
		_, text, _ := strings.Cut(string(buffer[:n]), ";")
		line, _, _ := strings.Cut(text, "\n")
		lines = append(lines, line)
	}
}

// stockDenials are what Debian's policy of SELinux denies to its own libvirt and QEMU, with or
// without Volferry: libvirt asks who is logged in, and reads the tables of the firmware; QEMU asks
// for io_uring, processors, limits of memory, and for the process that has sent it a signal.
var stockDenials = regexp.MustCompile(`comm="dmidecode"|name="utmp".*:virtd_t:|anonclass=\[io_uring\].*scontext=\S+:(virtd|svirt)_t:|` +
	`scontext=\S+:svirt_t:\S* tcontext=\S+:(sysfs_t|sysctl_vm_t|virtd_t):`)

// isDenial reports whether a line of the kernel's log is about something that AppArmor or SELinux
// has denied, other than stockDenials.
func isDenial(line string) bool {
	if strings.Contains(line, `apparmor="DENIED"`) {
		return true
	}
	return strings.Contains(line, "avc:  denied") && !strings.HasSuffix(line, "permissive=1") && !stockDenials.MatchString(line)
}
