// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
)

func TestAnImageThatQEMUCannotOpenIsNamed(t *testing.T) {
	_, dir := reachable(t)
	path := filepath.Join(dir, "image")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	qemu := hv.ProcessUser{UID: 64055, GID: 4242}
	given := qemu
	given.Given = true
	for name, c := range map[string]struct {
		who      hv.ProcessUser
		uid, gid int
		mode     os.FileMode
		words    string // in the refusal, none if it can be opened
	}{
		"root's, which libvirt gives":              {given, 0, 0, 0o600, ""},
		"root's, which libvirt does not give":      {qemu, 0, 0, 0o600, "dynamic_ownership"},
		"QEMU's own":                               {qemu, 64055, 0, 0o600, ""},
		"of its group":                             {qemu, 0, 4242, 0o660, ""},
		"of its group, for reading":                {qemu, 0, 4242, 0o640, "mode 0640"},
		"everybody's":                              {qemu, 0, 0, 0o666, ""},
		"for reading only, for its owner":          {given, 0, 0, 0o400, "also as its owner"},
		"root's, and QEMU is root":                 {hv.ProcessUser{}, 0, 0, 0o600, ""},
		"somebody's, from whom libvirt may borrow": {given, 1, 1, 0o600, ""},
	} {
		if err := errors.Join(os.Chown(path, c.uid, c.gid), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		before, err := image.Storage{}.Rights(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		err = image.Storage{}.MayOpen(c.who, path)
		var cannot *image.OpenError
		switch {
		case c.words == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.words != "" && (!errors.As(err, &cannot) || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), path)):
			t.Errorf("%s: %v, want %q", name, err, c.words)
		}
		if after, err := (image.Storage{}).Rights(t.Context(), path); err != nil || after.UID != before.UID || after.GID != before.GID || after.Mode != before.Mode {
			t.Errorf("%s: its rights were %+v and are %+v (%v)", name, before, after, err)
		}
	}
	if err := (image.Storage{}).MayOpen(given, path+"-not"); !errors.Is(err, image.ErrAbsent) {
		t.Errorf("%v, want ErrAbsent", err)
	}
}

func TestADirectoryIsTriedAndNothingIsLeft(t *testing.T) {
	_, dir := reachable(t)
	if err := (image.Storage{}).TryDirectory(hv.ProcessUser{UID: 64055, GID: 64055, Given: true}, dir, image.Needs{FileBytes: 1 << 40, Named: true, Kept: true}); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}
