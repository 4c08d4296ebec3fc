// SPDX-License-Identifier: Apache-2.0

package openfile_test

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/openfile"
)

func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// asked records its calls, and permits everything.
type asked struct{ found []string }

func (a *asked) CheckFound(path, real string, device bool) error {
	a.found = append(a.found, path+" "+real)
	if device {
		return errors.New("a device")
	}
	return nil
}

// TestWhatIsNoImageIsRefusedAtOnce: opening a pipe would wait for its other end.
func TestWhatIsNoImageIsRefusedAtOnce(t *testing.T) {
	dir := realDir(t)
	must(t, unix.Mkfifo(dir+"/pipe", 0o600))
	must(t, os.Symlink(dir+"/pipe", dir+"/to-pipe"))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", dir+"/socket")
	must(t, err)
	defer func() { _ = l.Close() }()
	for _, path := range []string{dir, dir + "/pipe", dir + "/to-pipe", dir + "/socket", "/dev/null", "/dev/shm", "/dev/fd"} {
		for _, flags := range []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY} {
			var refused *openfile.Error
			if f, err := openfile.Anywhere().Open(path, flags); !errors.As(err, &refused) || refused.Path != path || f != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if _, err := openfile.Anywhere().Open(dir+"/none", os.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}

func TestALinkIsFollowedOnlyWhereThePlacesSaySo(t *testing.T) {
	dir := realDir(t)
	must(t, os.Mkdir(dir+"/images", 0o700))
	secret := write(t, dir+"/secret", "secret")
	plain := write(t, dir+"/images/plain", "plain")
	must(t, os.Symlink(secret, dir+"/images/link"))
	must(t, os.Symlink("images", dir+"/alias"))
	for path, real := range map[string]string{dir + "/images/link": secret, dir + "/alias/plain": plain} {
		var refused *openfile.Error
		if _, err := (openfile.Files{}).Open(path, os.O_RDONLY); !errors.As(err, &refused) || !strings.Contains(err.Error(), real) {
			t.Errorf("%s: %v", path, err)
		}
		places := &asked{}
		f, err := openfile.Files{Places: places}.Open(path, os.O_RDONLY)
		must(t, err)
		if len(places.found) != 1 || places.found[0] != path+" "+real || f.Name() != path {
			t.Errorf("%s: asked %q, opened %s", path, places.found, f.Name())
		}
		must(t, f.Close())
	}
	places := &asked{}
	f, err := openfile.Files{Places: places}.Open(plain, os.O_RDONLY)
	must(t, err)
	must(t, f.Close())
	if len(places.found) != 0 {
		t.Errorf("asked of a path without links: %q", places.found)
	}
	if f, err = (openfile.Files{}).Open(plain, os.O_RDWR); err != nil {
		t.Fatal(err)
	}
	must(t, f.Close())
	if _, err := openfile.Anywhere().Open(dir+"/images/link", os.O_RDONLY|unix.O_NOFOLLOW); err == nil {
		t.Error("a link was followed that nobody may follow")
	}
}

// TestWhatWasFoundIsWhatIsOpened, whatever replaces it meanwhile.
func TestWhatWasFoundIsWhatIsOpened(t *testing.T) {
	dir := realDir(t)
	path, secret := write(t, dir+"/image", "image"), write(t, dir+"/secret", "secret")
	img, err := openfile.Files{}.Find(path, 0)
	must(t, err)
	defer img.Close()
	must(t, os.Rename(path, dir+"/moved"))
	must(t, os.Symlink(secret, path))
	f, err := img.Open(os.O_RDONLY)
	must(t, err)
	defer func() { _ = f.Close() }()
	if text, err := io.ReadAll(f); err != nil || string(text) != "image" {
		t.Errorf("read %q, %v", text, err)
	}
}

func TestANodeOutsideOfDevIsOpenedOnlyWhereThePlacesSaySo(t *testing.T) {
	path := realDir(t) + "/node"
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(240, 99))); err != nil {
		t.Skipf("SKIPPED: device nodes cannot be made here: %v", err)
	}
	var refused *openfile.Error
	if _, err := (openfile.Files{}).Find(path, 0); !errors.As(err, &refused) {
		t.Errorf("without places: %v", err)
	}
	places := &asked{}
	if _, err := (openfile.Files{Places: places}).Find(path, 0); err == nil || len(places.found) != 1 {
		t.Errorf("%v, asked %q", err, places.found)
	}
}

func TestADirectoryIsOpenedWhereAnImageMayBeMade(t *testing.T) {
	dir := realDir(t)
	must(t, os.Mkdir(dir+"/images", 0o700))
	must(t, os.Symlink("images", dir+"/alias"))
	if d, err := (openfile.Files{}).OpenDir(dir + "/images/new"); err != nil {
		t.Error(err)
	} else {
		must(t, d.Close())
	}
	if _, err := (openfile.Files{}).OpenDir(dir + "/alias/new"); err == nil {
		t.Error("a link was followed")
	}
	places := &asked{}
	d, err := openfile.Files{Places: places}.OpenDir(dir + "/alias/new")
	must(t, err)
	must(t, d.Close())
	if len(places.found) != 1 || places.found[0] != dir+"/alias/new "+dir+"/images/new" {
		t.Errorf("asked %q", places.found)
	}
}
