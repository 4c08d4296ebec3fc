// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The owners with limits in the tests: numbers without other files on this machine.
const (
	user    = 54321
	group   = 54322
	project = 54323

	limitBytes = 8 << 20
)

var filesystems = []struct {
	name       string
	make, with []string
}{
	{"ext4", []string{"mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"}, []string{"-o", "loop,usrquota,grpquota,prjquota"}},
	{"xfs", []string{"mkfs.xfs", "-q"}, []string{"-o", "loop,uquota,gquota,pquota"}},
}

// requireEnv is set if the kernel has quotas, as in test/storage.
const requireEnv = "VOLFERRY_QUOTAS"

// mounted makes a filesystem and returns its mount point with these options. It skips the test if
// the kernel has no quotas.
func mounted(t *testing.T, make []string, with []string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root to mount a filesystem")
	}
	if _, err := exec.LookPath(make[0]); err != nil && os.Getenv(requireEnv) == "" {
		t.Skipf("SKIPPED: %v; left to make test-storage", err)
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 512<<20); err != nil {
		t.Fatal(err)
	}
	run(t, append(make, image)...)
	if out, err := exec.CommandContext(t.Context(), "mount", append(with, image, dir)...).CombinedOutput(); err != nil {
		if os.Getenv(requireEnv) != "" {
			t.Fatalf("this kernel mounts no filesystem with quotas: %s", out)
		}
		t.Skipf("SKIPPED: this kernel mounts no filesystem with quotas; left to make test-storage: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() }) //nolint:noctx // the test's has ended
	return dir
}

func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil { //nolint:gosec // the test's own words
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// limit gives the files of an owner a hard limit.
func limit(t *testing.T, at *os.File, number uintptr, id uint32, bytes uint64) {
	t.Helper()
	const (
		setLimit = 'X'<<8 + 4 // Q_XSETQLIM
		hardOnly = 1 << 3     // FS_DQ_BHARD
	)
	request := make([]byte, diskQuotaBytes)
	request[0] = 1
	request[1] = []byte{1, 4, 2}[number] // FS_USER_QUOTA, FS_GROUP_QUOTA, FS_PROJ_QUOTA
	binary.NativeEndian.PutUint16(request[2:], hardOnly)
	binary.NativeEndian.PutUint32(request[4:], id)
	binary.NativeEndian.PutUint64(request[hardLimitOffset:], bytes/unitBytes)
	if err := ask(at, setLimit, number, id, request); err != nil {
		t.Fatalf("set the limit of %d: %v", id, err)
	}
}

// inherit makes a directory pass its project on to new files.
func inherit(t *testing.T, dir *os.File) {
	t.Helper()
	const setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	attributes := make([]byte, attributesBytes)
	binary.NativeEndian.PutUint32(attributes, projectIsInherited)
	binary.NativeEndian.PutUint32(attributes[projectOffset:], project)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), setAttributes, uintptr(unsafe.Pointer(&attributes[0]))); errno != 0 {
		t.Fatalf("give %s a project: %v", dir.Name(), errno)
	}
}

// overfill writes more than the limit to a new file of the user, with only that user's rights, and
// returns the kernel's error.
func overfill(t *testing.T, path string) error {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Chown(user, group); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "head", "-c", strconv.Itoa(2*limitBytes), "/dev/zero")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: group}}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = f, &said
	err = cmd.Run()
	for _, full := range []error{unix.EDQUOT, unix.ENOSPC} {
		if err != nil && strings.Contains(strings.ToLower(said.String()), full.Error()) {
			return full
		}
	}
	return errors.Join(err, errors.New(said.String()))
}

func TestALimitIsKnownOfWhoeverItIsSetForWithTheErrorOfAWriteBeyondIt(t *testing.T) {
	who := Owner{User: user, Group: group, Project: project}
	for _, fs := range filesystems {
		t.Run(fs.name, func(t *testing.T) {
			top := mounted(t, fs.make, fs.with)
			for _, k := range kinds {
				t.Run(string(k.kind), func(t *testing.T) {
					path := filepath.Join(top, string(k.kind))
					if err := os.Mkdir(path, 0o700); err != nil {
						t.Fatal(err)
					}
					dir, err := os.Open(path)
					if err != nil {
						t.Fatal(err)
					}
					defer dir.Close()
					inherit(t, dir)
					if id, err := ProjectIn(dir); err != nil || id != project {
						t.Errorf("the files of the directory are of project %d (%v)", id, err)
					}
					if got, err := Limits(dir, who); err != nil || len(got) != 0 {
						t.Fatalf("before there is one the limits are %+v (%v)", got, err)
					}
					ids := map[Kind]uint32{User: user, Group: group, Project: project}
					limit(t, dir, k.number, ids[k.kind], limitBytes)
					defer limit(t, dir, k.number, ids[k.kind], 0)

					refusal := overfill(t, filepath.Join(path, "file"))
					got, err := Limits(dir, who)
					if err != nil || len(got) != 1 || got[0].Kind != k.kind || got[0].ID != ids[k.kind] || got[0].Bytes != limitBytes {
						t.Fatalf("the limits are %+v (%v)", got, err)
					}
					if free := got[0].FreeBytes(); free >= 1<<20 {
						t.Errorf("%d bytes are free of a quota that is used up", free)
					}
					if want := map[bool]error{true: unix.ENOSPC, false: unix.EDQUOT}[got[0].AsFull]; !errors.Is(refusal, want) {
						t.Errorf("a write beyond the limit is refused as %v, and the limit says %v", refusal, want)
					}
					if err := os.Remove(filepath.Join(path, "file")); err != nil {
						t.Fatal(err)
					}
				})
			}
			root, err := os.Open(top)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if id, err := ProjectIn(root); err != nil || id != 0 {
				t.Errorf("a directory that has no project has %d (%v)", id, err)
			}
		})
	}
}

func TestAFilesystemWithoutQuotasHasNoLimits(t *testing.T) {
	for _, path := range []string{t.TempDir(), "/proc", "/dev/shm"} {
		dir, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		got, err := Limits(dir, Owner{User: user, Group: group})
		if err != nil || slices.ContainsFunc(got, func(l Limit) bool { return l.Kind != Project }) {
			t.Errorf("%s: %+v (%v)", path, got, err)
		}
		if _, err := ProjectIn(dir); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
