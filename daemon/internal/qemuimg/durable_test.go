// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// onBothFilesystems runs a test on a filesystem with unnamed files, and as on one without.
func onBothFilesystems(t *testing.T, test func(t *testing.T)) {
	t.Run("nameless", test)
	t.Run("named", func(t *testing.T) {
		was := openNameless
		t.Cleanup(func() { openNameless = was })
		openNameless = func(int) (int, error) { return -1, unix.EOPNOTSUPP }
		test(t)
	})
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestCreateTouchesNoOtherFile(t *testing.T) {
	onBothFilesystems(t, func(t *testing.T) {
		for _, format := range []string{FormatRaw, FormatQCOW2} {
			dir := t.TempDir()
			path := filepath.Join(dir, "db.raw")
			if err := os.WriteFile(path+".new", []byte("somebody's volume"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := Create(t.Context(), Image{Path: path, Format: format}, 1<<20, NewFile{}); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(path + ".new"); err != nil || string(b) != "somebody's volume" {
				t.Errorf("%s: the file beside it has %q (%v)", format, b, err)
			}
			if got := names(t, dir); !slices.Equal(got, []string{"db.raw", "db.raw.new"}) {
				t.Errorf("%s: the directory has %v", format, got)
			}
			if n, err := VirtualSize(t.Context(), Image{Path: path, Format: format}); n != 1<<20 || err != nil {
				t.Errorf("%s: the image has %d bytes (%v)", format, n, err)
			}
		}
	})
}

// TestWhatAppearsAtThePathMeanwhileIsLeftAlone: the path was free when it was checked.
func TestWhatAppearsAtThePathMeanwhileIsLeftAlone(t *testing.T) {
	onBothFilesystems(t, func(t *testing.T) {
		dir := t.TempDir()
		path, secret := filepath.Join(dir, "db.raw"), filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Create(t.Context(), Image{Path: path, Format: FormatQCOW2}, 1<<20, NewFile{Whole: func(*os.File) error { return os.Symlink(secret, path) }})
		if !errors.Is(err, fs.ErrExist) {
			t.Errorf("got %v, want fs.ErrExist", err)
		}
		if b, err := os.ReadFile(secret); err != nil || string(b) != "root's" {
			t.Errorf("the file behind the link has %q (%v)", b, err)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"db.raw"}) {
			t.Errorf("the directory has %v", got)
		}
	})
}

// TestATemporaryFileThatIsSwappedIsNotFollowed: any user who may write to the directory can replace
// the temporary file by a link while it is being filled.
func TestATemporaryFileThatIsSwappedIsNotFollowed(t *testing.T) {
	was := openNameless
	t.Cleanup(func() { openNameless = was })
	openNameless = func(int) (int, error) { return -1, unix.EOPNOTSUPP }
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "db.qcow2")
	_ = createWhole(Image{Path: path}, NewFile{Temporary: "tmp"}, func(f *os.File) error {
		if err := errors.Join(os.Remove(f.Name()), os.Symlink(secret, f.Name())); err != nil {
			t.Fatal(err)
		}
		_, err := run(t.Context(), createArgs(childFile(0), nil, 1<<20), childOptions{files: []*os.File{f}})
		return err
	})
	if b, err := os.ReadFile(secret); err != nil || string(b) != "root's" {
		t.Errorf("the file behind the link has %d bytes (%v)", len(b), err)
	}
	// The replaced file has no name any more, and no other file got its path.
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() == fs.ModeSymlink {
		t.Error("a link of somebody else is at the path")
	}
}
