// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAMarkIsReadWhereItWasWrittenAndNowhereElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	image := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, 2*MaxAlignBytes), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ours, other := image("ours"), image("other")
	if err := (Storage{}).Mark(t.Context(), ours, "this one"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path, text string
		want       bool
	}{{ours, "this one", true}, {ours, "this", false}, {ours, "this one too", false}, {other, "this one", false}} {
		if is, err := (Storage{}).Marked(t.Context(), tc.path, tc.text); err != nil || is != tc.want {
			t.Errorf("%s is marked with %q: %v (%v), want %v", tc.path, tc.text, is, err, tc.want)
		}
	}
	if _, err := (Storage{}).Marked(t.Context(), filepath.Join(dir, "none"), "this one"); !errors.Is(err, ErrAbsent) {
		t.Errorf("nothing at the path: %v, want ErrAbsent", err)
	}
	if info, err := os.Stat(ours); err != nil || info.Size() != 2*MaxAlignBytes {
		t.Errorf("the marked image has %d bytes (%v)", info.Size(), err)
	}
}
