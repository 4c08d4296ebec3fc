// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// muteMount mounts a FUSE file system; its server never answers.
func muteMount(t *testing.T) (dir string) {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		t.Skipf("this machine has no FUSE: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	err = unix.Mount("fuse", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd()))
	if err != nil {
		_ = server.Close()
	}
	if errors.Is(err, fs.ErrPermission) {
		t.Skipf("SKIPPED: a mount needs CAP_SYS_ADMIN: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // with the server's end the requests of all others end too
		_ = server.Close()
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	return dir
}

func TestADescriptorOfAServerThatNeverAnswersStallsNoLook(t *testing.T) {
	mute, proc, image := muteMount(t), Dir(t.TempDir()), filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wanted, err := Identify(image)
	if err != nil {
		t.Fatal(err)
	}
	crowd(t, proc, 64055, 7)
	opens(t, proc, 7, 3, mute, "00")
	opens(t, proc, 7, 4, image, "02")
	type answer struct {
		claims []Claim
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		claims, err := proc.Claims(t.Context(), "a", []Image{wanted})
		answers <- answer{claims, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil || len(a.claims) != 1 || len(a.claims[0].Files) != 1 || a.claims[0].Files[0].FD != 4 {
			t.Errorf("%+v, %v, want the descriptor 4 of the image", a.claims, a.err)
		}
	case <-time.After(time.Minute):
		t.Error("the look waits for a server that never answers")
	}
}

// A path of /dev and its number have to give the same identity as other programs see.
func TestAnIdentityIsTheOneOfStat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	if got, err := Identify(path); err != nil || got != (Image{Dev: st.Dev, Ino: st.Ino}) {
		t.Errorf("%+v, %v; stat has device %d and inode %d", got, err, st.Dev, st.Ino)
	}
}
