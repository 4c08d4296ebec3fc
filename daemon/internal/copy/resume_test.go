// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/copy/copytest"
)

// resumeRole makes the test binary copy the images named in it, and print its progress on stdout.
const resumeRole = "VOLFERRY_TEST_COPY"

// copyInChild is the process that TestKill... kills.
func copyInChild(t *testing.T, names string) {
	parts := strings.Split(names, "|")
	size, err := strconv.ParseInt(parts[3], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = copy.Copy(t.Context(), copy.Spec{
		Src:      copy.Image{Path: parts[0], Format: "raw", SizeBytes: size},
		Dst:      copy.Image{Path: parts[1], Format: "raw", SizeBytes: size},
		Cursor:   copy.NewFileCursor(parts[2]),
		Progress: func(p copy.Progress) { _, _ = fmt.Fprintln(os.Stdout, p.BytesDone) },
	})
}

func TestAfterKillAtMost256MiBAreCopiedAgain(t *testing.T) {
	if names := os.Getenv(resumeRole); names != "" {
		copyInChild(t, names)
		return
	}
	const size, killAt, rework = 448 * miB, 300 * miB, 256 * miB
	src, dst := raw(t, "src", size, [2]int64{0, size}), raw(t, "dst", size)
	cursorPath := filepath.Join(t.TempDir(), "cursor")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), resumeRole+"="+strings.Join(
		[]string{src.Path, dst.Path, cursorPath, strconv.Itoa(size)}, "|"))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var done int64
	for lines := bufio.NewScanner(out); done < killAt && lines.Scan(); {
		if done, err = strconv.ParseInt(lines.Text(), 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()

	cursor := copy.NewFileCursor(cursorPath)
	defer cursor.Close()
	counter := &copytest.Counter{}
	result := mustCopy(t, copy.Spec{
		Src: src, Dst: dst, Cursor: cursor, Verify: true,
		OpenEnd: copytest.Wrap("/dst", func(e copy.End) copy.End {
			counter.End = e
			return counter
		}),
	})
	assertEqual(t, src, dst)
	if again := counter.Written.Load() - (size - done); again > rework {
		t.Errorf("killed at %d MiB, %d MiB were copied again", done/miB, again/miB)
	}
	t.Logf("killed at %d MiB, resumed %d MiB, wrote %d MiB", done/miB, result.BytesResumed/miB, counter.Written.Load()/miB)
	if result.BytesResumed == 0 {
		t.Error("nothing was resumed")
	}
}

// finished copies with a cursor and returns it, closed.
func finished(t *testing.T, src, dst copy.Image) *copy.FileCursor {
	t.Helper()
	cursor := copy.NewFileCursor(filepath.Join(t.TempDir(), "cursor"))
	mustCopy(t, copy.Spec{Src: src, Dst: dst, Cursor: cursor})
	if err := cursor.Close(); err != nil {
		t.Fatal(err)
	}
	return cursor
}

func TestResumeRepairsWhatTheDiskLostOfTheLastWindow(t *testing.T) {
	src, dst := raw(t, "src", 16*miB, [2]int64{0, 10 * miB}), raw(t, "dst", 16*miB)
	cursor := finished(t, src, dst)
	fill(t, dst, [2]int64{4*miB + 100, 64})
	fill(t, dst, [2]int64{12 * miB, 4096})
	result := mustCopy(t, copy.Spec{Src: src, Dst: dst, Cursor: cursor, Verify: true})
	if result.BytesResumed != 14*miB {
		t.Errorf("resumed %d bytes", result.BytesResumed)
	}
	assertEqual(t, src, dst)
	_ = cursor.Close()
}

func TestTheDigestIsTheSameResumedOrNot(t *testing.T) {
	src, dst := raw(t, "src", 5*miB+512, [2]int64{0, 2 * miB}), raw(t, "dst", 5*miB+512)
	fresh := mustCopy(t, copy.Spec{Src: src, Dst: dst})
	cursor := finished(t, src, dst)
	resumed := mustCopy(t, copy.Spec{Src: src, Dst: dst, Cursor: cursor})
	if fresh.Digest != resumed.Digest || resumed.BytesResumed != src.SizeBytes {
		t.Errorf("fresh %+v, resumed %+v", fresh, resumed)
	}
	_ = cursor.Close()
}

func TestACursorOfAnotherCopyIsNotUsed(t *testing.T) {
	src, dst := raw(t, "src", 4*miB, [2]int64{0, 4 * miB}), raw(t, "dst", 4*miB)
	cursor := finished(t, src, dst)
	other := raw(t, "other", 4*miB)
	for range 2 { // the second time the log has a record of this copy
		result := mustCopy(t, copy.Spec{Src: src, Dst: other, Cursor: cursor, Verify: true})
		t.Logf("resumed %d", result.BytesResumed)
		assertEqual(t, src, other)
	}
	_ = cursor.Close()
}
