// SPDX-License-Identifier: Apache-2.0

package transfer_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/test/lab"
)

// The storage has lost data that the cursor has as copied, at an earlier place than a continued
// copy checks: the next copy after the error starts over.
func TestACopyThatIsNotEqualIsMendedByCopyingAgain(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	const size = 320 << 20 // sparse
	for path, text := range map[string]string{src: "what the guest wrote", dst: ""} {
		expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
		expect.OK(t, os.Truncate(path, size))
	}
	expect.OK(t, os.Mkdir(filepath.Join(dir, "cursors"), 0o700))
	c := transfer.NewCopier(filepath.Join(dir, "cursors"), sandbox.Privileged{}.ThinBlockBytes, network.Access{}, slog.New(slog.DiscardHandler))
	copyOnce := func() error {
		_, err := c.Copy(t.Context(), move.CopyRequest{
			Key: "k", Src: []hv.Image{rawFile(src)}, Dst: []hv.Image{rawFile(dst)}, SizeBytes: size,
			Options: func() api.CopyOptions { return api.CopyOptions{Verify: api.VerifyFull} }, Progress: func(move.Progress) {},
		})
		return err
	}
	expect.OK(t, copyOnce())
	f, err := os.OpenFile(dst, os.O_WRONLY, 0)
	expect.OK(t, err)
	_, err = f.WriteAt([]byte("something else"), 0)
	expect.OK(t, err)
	expect.OK(t, f.Close())
	if err := copyOnce(); api.CodeOf(err) != api.CodeCopyMismatch {
		t.Fatalf("got %v, want copy_mismatch", err)
	}
	expect.OK(t, copyOnce())
	expect.OK(t, c.Compare(t.Context(), []hv.Image{rawFile(src)}, []hv.Image{rawFile(dst)}, size, func(move.Progress) {}))
}

// From the moment the copy continues the guest's flushes take twenty times as long.
func TestACopySaysWhichRequestsOfTheGuestItGivesWayTo(t *testing.T) {
	dir := t.TempDir()
	src, dst := rawFile(filepath.Join(dir, "src")), rawFile(filepath.Join(dir, "dst"))
	const size = 64 << 20
	expect.OK(t, os.WriteFile(src.Path, bytes.Repeat([]byte("what the guest wrote "), size/21+1)[:size], 0o600))
	expect.OK(t, os.WriteFile(dst.Path, nil, 0o600))
	expect.OK(t, os.Truncate(dst.Path, size))
	looks, disk := 0, hv.DiskStats{}
	guest := func(context.Context) (*hv.DiskStats, error) {
		looks++
		took := time.Millisecond
		if looks > 4 {
			took = 20 * time.Millisecond
		}
		disk.ReadRequests, disk.ReadTime = disk.ReadRequests+10, disk.ReadTime+10*time.Millisecond
		disk.FlushRequests, disk.FlushTime = disk.FlushRequests+10, disk.FlushTime+10*took
		now := disk
		return &now, nil
	}
	var said atomic.Bool
	options := func() api.CopyOptions {
		if said.Load() {
			return api.CopyOptions{Verify: api.VerifyNone, Pace: api.PaceOff}
		}
		return api.CopyOptions{Verify: api.VerifyNone, BandwidthBytesPerSecond: 16 << 20}
	}
	c := transfer.NewCopier(dir, sandbox.Privileged{}.ThinBlockBytes, network.Access{}, slog.New(slog.DiscardHandler))
	res, err := c.Copy(t.Context(), move.CopyRequest{
		Key: "k", Src: []hv.Image{src}, Dst: []hv.Image{dst}, SizeBytes: size, Options: options, GuestStats: guest,
		Progress: func(p move.Progress) {
			kind := p.Pacing.PacingKind
			if kind != (move.PacingKind{}) && !slices.Contains(move.PacingKinds(), kind) {
				t.Errorf("%q of %q is none of the known kinds", kind, p.Pacing.Words)
			}
			if (kind.Doing == "gives_way" || kind.Doing == "keeps_share") && kind.Requests == "flushes" {
				said.Store(true)
			}
		},
	})
	expect.OK(t, err)
	switch {
	case res.Cloned:
		t.Skip("SKIPPED: this filesystem clones files, and a clone gives way to nobody")
	case !said.Load():
		t.Error("it did not say that it gives way to flushes")
	}
}

func rawFile(path string) hv.Image {
	return hv.Image{Type: hv.SourceFile, Format: "raw", Path: path}
}

// A guest that went off in its switch may have written to the overlay last: the overlay, over a src
// that is the beginning of an image, is compared with dst.
func TestAnOverlayOverABeginningIsComparedWithACopyThatIsOne(t *testing.T) {
	if _, err := exec.LookPath("qemu-nbd"); err != nil {
		t.Skip("SKIPPED: no qemu-nbd: ", err)
	}
	const size = 1 << 20
	beginning := func(name string, bytes int) hv.Image {
		file := filepath.Join(t.TempDir(), name)
		expect.OK(t, os.WriteFile(file, []byte("what the guest wrote"), 0o600))
		expect.OK(t, os.Truncate(file, int64(bytes)))
		export, err := lab.Serve(t.Context(), file, name, file+".sock")
		expect.OK(t, err)
		t.Cleanup(func() { _ = export.Close() })
		return hv.Image{Type: hv.SourceNetwork, Format: "raw", Path: export.URI(), SliceBytes: size}
	}
	src, dst := beginning("src", 2*size), beginning("dst", 3*size)
	overlay := hv.Image{Type: hv.SourceFile, Format: "qcow2", Path: filepath.Join(t.TempDir(), "overlay")}
	expect.OK(t, image.Storage{}.CreateOverlay(t.Context(), overlay.Path, src, size, nil))
	c := transfer.NewCopier(t.TempDir(), sandbox.Privileged{}.ThinBlockBytes, network.Access{}, slog.New(slog.DiscardHandler))
	expect.OK(t, c.Compare(t.Context(), []hv.Image{overlay, src}, []hv.Image{dst}, size, func(move.Progress) {}))
}

// The path has another file when it is opened.
func TestTheCopierWritesOnlyToTheFileThatWasMade(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.raw"), filepath.Join(dir, "dst.raw")
	expect.OK(t, os.WriteFile(src, make([]byte, 1<<20), 0o600))
	expect.OK(t, os.WriteFile(dst, []byte{}, 0o600))
	fingerprint, err := location.Fingerprint(dst)
	expect.OK(t, err)
	expect.OK(t, os.Rename(dst, dst+".away"))
	theirs := strings.Repeat("x", 1<<20)
	expect.OK(t, os.WriteFile(dst, []byte(theirs), 0o600))
	c := transfer.NewCopier(t.TempDir(), sandbox.Privileged{}.ThinBlockBytes, network.Access{}, slog.New(slog.DiscardHandler))
	_, err = c.Copy(t.Context(), move.CopyRequest{
		Key: "k", Src: []hv.Image{{Path: src, Format: hvtest.Raw}}, Dst: []hv.Image{{Path: dst, Format: hvtest.Raw}}, SizeBytes: 1 << 20,
		DstPrint: fingerprint, Options: func() api.CopyOptions { return api.CopyOptions{} }, Progress: func(move.Progress) {},
	})
	if api.CodeOf(err) != api.CodeDstInUse {
		t.Errorf("got %v, want dst_in_use", err)
	}
	if text, err := os.ReadFile(dst); err != nil || string(text) != theirs {
		t.Errorf("the file of somebody else was written (%v)", err)
	}
}

func TestWhatIsChangedOfACopyIsKeptInAFileUntilItIsForgotten(t *testing.T) {
	dir := t.TempDir()
	wantUpdate := func(want api.MigrationUpdate) {
		t.Helper()
		got, err := transfer.NewCopier(dir, sandbox.Privileged{}.ThinBlockBytes, network.Access{}, slog.New(slog.DiscardHandler)).Update("copy/m")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	wantUpdate(api.MigrationUpdate{})
	c := transfer.NewCopier(dir, sandbox.Privileged{}.ThinBlockBytes, network.Access{}, slog.New(slog.DiscardHandler))
	for _, bps := range []int64{1 << 40, 0} {
		update := api.MigrationUpdate{BandwidthBytesPerSecond: &bps}
		expect.OK(t, c.SetUpdate("copy/m", update))
		wantUpdate(update)
	}
	expect.OK(t, c.Forget(t.Context(), "copy/m"))
	wantUpdate(api.MigrationUpdate{})
}
