// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/sandbox"
)

// accessList permits user 65534 to read and the group nothing, with read as the maximum.
func accessList() []byte {
	acl := binary.LittleEndian.AppendUint32(nil, 2)
	const nobodysID = 0xffffffff
	for _, entry := range []struct {
		tag, allowed uint16
		id           uint32
	}{{0x01, 6, nobodysID}, {0x02, 4, 65534}, {0x04, 0, nobodysID}, {0x10, 4, nobodysID}, {0x20, 0, nobodysID}} {
		acl = binary.LittleEndian.AppendUint16(acl, entry.tag)
		acl = binary.LittleEndian.AppendUint16(acl, entry.allowed)
		acl = binary.LittleEndian.AppendUint32(acl, entry.id)
	}
	return acl
}

// withAttributes makes an empty file of user 1000 with an access list and a label.
func withAttributes(t *testing.T, label string) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	f, err := os.CreateTemp(t.TempDir(), "image")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := errors.Join(f.Chown(1000, 1001), unix.Fsetxattr(int(f.Fd()), attrACL, accessList(), 0), unix.Fsetxattr(int(f.Fd()), attrLabel, []byte(label+"\x00"), 0)); err != nil {
		t.Skipf("the filesystem of %s has no such attributes: %v", f.Name(), err)
	}
	return f
}

const testLabel = "system_u:object_r:virt_image_t:s0"

func TestACopyHasTheRightsOfTheImage(t *testing.T) {
	src := withAttributes(t, testLabel)
	want, err := Storage{}.Rights(t.Context(), src.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"raw", "qcow2"} {
		path := filepath.Join(t.TempDir(), "dst")
		img := hv.Image{Type: hv.SourceFile, Format: format, Path: path}
		refuse := func(left []string) { t.Errorf("%s: refused %v", format, left) }
		if err := (Storage{}).Create(t.Context(), img, 1<<20, NewFile{Rights: want, Left: refuse}); err != nil {
			t.Fatal(err)
		}
		hasRights(t, path, want)
	}
	overlay := filepath.Join(t.TempDir(), "overlay")
	backing := hv.Image{Type: hv.SourceFile, Format: "raw", Path: src.Name()}
	if err := (Storage{}).CreateOverlay(t.Context(), overlay, backing, 1<<20, want); err != nil {
		t.Fatal(err)
	}
	hasRights(t, overlay, want)
}

func hasRights(t *testing.T, path string, want *Rights) {
	t.Helper()
	got, err := Storage{}.Rights(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != want.UID || got.GID != want.GID || got.Mode != want.Mode || !slices.Equal(got.ACL, want.ACL) || !slices.Equal(got.Label, want.Label) {
		t.Errorf("%s has %+v, want %+v", path, got, want)
	}
}

// The access list that a file inherits from its directory is not the image's.
func TestWhatTheDirectoryGivesIsTakenAway(t *testing.T) {
	plain := withAttributes(t, testLabel)
	if err := unix.Fremovexattr(int(plain.Fd()), attrACL); err != nil {
		t.Fatal(err)
	}
	want, err := Storage{}.Rights(t.Context(), plain.Name())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Setxattr(dir, "system.posix_acl_default", accessList(), 0); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "dst")
	if err := (Storage{}).Create(t.Context(), hv.Image{Format: "raw", Path: path}, 1<<20, NewFile{Rights: want}); err != nil {
		t.Fatal(err)
	}
	hasRights(t, path, want)
}

func TestWhatLibvirtRemembersIsTakenForTheRights(t *testing.T) {
	f := withAttributes(t, "system_u:object_r:svirt_image_t:s0:c1,c2")
	for name, value := range map[string]string{sandbox.AttrOwnerBefore: "+1234:+77", sandbox.AttrLabelBefore: testLabel} {
		if err := unix.Fsetxattr(int(f.Fd()), name, []byte(value), 0); err != nil {
			t.Skipf("the filesystem of %s has no trusted attributes: %v", f.Name(), err)
		}
	}
	if err := f.Chown(64055, 64055); err != nil {
		t.Fatal(err)
	}
	got, err := Storage{}.Rights(t.Context(), f.Name())
	if err != nil || got.UID != 1234 || got.GID != 77 || string(got.Label) != testLabel {
		t.Errorf("%+v, %v", got, err)
	}

	if left, err := (Storage{}).GiveBack(t.Context(), f.Name(), got); err != nil || len(left) > 0 {
		t.Fatalf("left %v, %v", left, err)
	}
	for _, name := range []string{sandbox.AttrOwnerBefore, sandbox.AttrLabelBefore} {
		if err := unix.Fremovexattr(int(f.Fd()), name); err != nil {
			t.Fatal(err)
		}
	}
	got.Label = []byte(testLabel + "\x00")
	hasRights(t, f.Name(), got)

	if err := unix.Fsetxattr(int(f.Fd()), sandbox.AttrOwnerBefore, []byte("root"), 0); err != nil {
		t.Fatal(err)
	}
	if got, err := (Storage{}).Rights(t.Context(), f.Name()); err == nil {
		t.Errorf("an owner that nobody can read is taken for %+v", got)
	}
}

// On a filesystem without owners or access lists no user gets more rights than on src.
func TestRightsThatAreRefusedGiveNobodyMore(t *testing.T) {
	f := withAttributes(t, testLabel)
	rights, err := readRights(t.Context(), Storage{}.Privileged, f)
	if err != nil {
		t.Fatal(err)
	}
	if rights.Mode != 0o640 {
		t.Fatalf("mode %o: the test is about one whose group bits are not the group's", rights.Mode)
	}
	if err := unix.Fremovexattr(int(f.Fd()), attrACL); err != nil {
		t.Fatal(err)
	}
	bad := append(slices.Clone(rights.ACL), 1)
	for _, c := range []struct {
		refused string
		rights  Rights
		who     hv.ProcessUser
		mode    uint32
	}{
		{"the access list", Rights{UID: 1000, GID: 1001, Mode: 0o640, ACL: bad}, hv.ProcessUser{}, 0o600},
		{"the owner 0:0", Rights{Mode: 0o664}, hv.ProcessUser{UID: 1000, GID: 1000}, 0o644},
	} {
		var left []string
		if err := userOf(c.who).As(func() (err error) {
			left, err = giveRights(f, &c.rights)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(left, []string{c.refused}) {
			t.Errorf("left %v, want %q", left, c.refused)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&0o777 != c.mode {
			t.Errorf("without %s: mode %o, want %o (%v)", c.refused, st.Mode&0o777, c.mode, err)
		}
	}
}

// If root may not change the owner of a file, as on NFS with root_squash, libvirt may not either.
func TestAnImageThatNobodyCanGiveAwayIsNotTakenForGiven(t *testing.T) {
	f := withAttributes(t, testLabel)
	if err := errors.Join(unix.Fremovexattr(int(f.Fd()), attrACL), f.Chmod(0o600), os.Chmod(filepath.Dir(f.Name()), 0o711), os.Chmod(filepath.Dir(filepath.Dir(f.Name())), 0o711)); err != nil {
		t.Fatal(err)
	}
	qemu := hv.ProcessUser{UID: 64055, GID: 64055, Given: true}
	err := userOf(hv.ProcessUser{UID: 1000, GID: 1001}).As(func() error { return Storage{}.user(qemu).mayOpen(f) })
	var cannot *OpenError
	if !errors.As(err, &cannot) || !cannot.NotGiven || !strings.Contains(err.Error(), "root_squash") {
		t.Errorf("%v", err)
	}
}
