// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// crowd starts processes of one user that claim to be domain a.
func crowd(t *testing.T, dir Dir, uid uint32, pids ...int) {
	t.Helper()
	first := t.TempDir()
	cmdline, status := filepath.Join(first, "cmdline"), filepath.Join(first, "status")
	errs := []error{
		os.WriteFile(cmdline, []byte("qemu\x00-uuid\x00a\x00"), 0o600),
		os.WriteFile(status, fmt.Appendf(nil, "Name:\tqemu\nUid:\t0\t%d\t0\t0\n", uid), 0o600),
	}
	for _, pid := range pids {
		of := dir.of(pid)
		errs = append(errs, os.MkdirAll(filepath.Join(of, "fd"), 0o755), os.Link(cmdline, filepath.Join(of, "cmdline")), os.Link(status, filepath.Join(of, "status")),
			os.Symlink("/usr/bin/qemu-system-x86_64", filepath.Join(of, "exe")))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// opens lets a process open a file.
func opens(t *testing.T, dir Dir, pid, fd int, path, flags string) {
	t.Helper()
	of := dir.of(pid)
	if err := errors.Join(os.MkdirAll(filepath.Join(of, "fdinfo"), 0o755), os.Symlink(path, filepath.Join(of, "fd", strconv.Itoa(fd))),
		os.WriteFile(filepath.Join(of, "fdinfo", strconv.Itoa(fd)), []byte("flags:\t"+flags+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func upTo(first, last int) (all []int) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// longest bounds an answer as JSON, because package sandbox sends its base64 in at most 256 KiB.
const longest = 190 << 10

func TestACrowdOfFalseClaimsHidesNoTrueOne(t *testing.T) {
	dir, images := Dir(t.TempDir()), t.TempDir()
	const guest, user = 64055, 1000
	crowd(t, dir, user, upTo(10, 210)...)
	crowd(t, dir, guest, 9000)
	var wanted []Image
	for fd, name := range []string{"src", "dst"} {
		path := filepath.Join(images, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		is, err := Identify(path)
		if err != nil {
			t.Fatal(err)
		}
		wanted = append(wanted, is)
		opens(t, dir, 9000, fd, path, "02")
		opens(t, dir, 10+fd, fd, path, "00")
	}
	// An open image is never hidden, whichever process has it open.
	opens(t, dir, 210, 7, filepath.Join(images, "src"), "02")
	got, err := dir.Claims(t.Context(), "a", wanted)
	if err != nil {
		t.Fatal(err)
	}
	of := func(uid uint32) (claims int, files []File) {
		for _, c := range got {
			if c.UID == uid {
				claims, files = claims+1, append(files, c.Files...)
			}
		}
		return claims, files
	}
	if n, files := of(guest); n != 1 || !slices.Equal(files, []File{{Image: 0, FD: 0, Writable: true}, {Image: 1, FD: 1, Writable: true}}) {
		t.Errorf("the guest's own: %d claims, %+v", n, files)
	}
	if n, files := of(user); n != 3 || !slices.Contains(files, File{Image: 0, FD: 7, Writable: true}) {
		t.Errorf("the user's: %d claims, %+v; want two, and the one that alone writes", n, files)
	}
}

// A user may have as many further users as subuid(5) permits.
func TestACrowdOfUsersHidesNoTrueClaimAndFitsInTheAnswer(t *testing.T) {
	claims := []Claim{{PID: 1, UID: 0}, {PID: 2, UID: 64055, Files: []File{{Image: 1, FD: 9}}}}
	for i := range uint32(60000) {
		claims = append(claims, Claim{PID: 1000 + int(i), UID: 100000 + i, Files: []File{{Image: 0, FD: 3}, {Image: 1, FD: 4}, {Image: 2, FD: 5, Writable: true}}})
	}
	only := File{Image: 3, FD: 6}
	got := fewer(append(claims, Claim{PID: 900000, UID: 165000, Files: []File{{Image: 0, FD: 3}, only}}))
	has := func(want Claim) bool {
		return slices.ContainsFunc(got, func(c Claim) bool { return c.PID == want.PID && slices.Equal(c.Files, want.Files) })
	}
	if !has(claims[0]) || !has(claims[1]) || !has(Claim{PID: 900000, Files: []File{only}}) {
		t.Errorf("of the true claims, and what one alone has open, not all are among %d", len(got))
	}
	if text, err := json.Marshal(got); err != nil || len(text) > longest {
		t.Errorf("an answer of %d bytes (%v)", len(text), err)
	}
}

func TestTooManyOpenFilesAreRefusedWithTheUserWhoHasThem(t *testing.T) {
	looked := descriptors{left: 100, of: map[uint32]int{}}
	for _, n := range []int{60, 30} {
		if err := looked.take(&Claim{UID: 1001}, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := looked.take(&Claim{UID: 64055}, 11); err == nil || !strings.Contains(err.Error(), "-u 1001 ") {
		t.Errorf("101 of 100: %v", err)
	}
}
