// SPDX-License-Identifier: Apache-2.0

package transfer_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// When the switch to dst is taken back the copier compares the guest's view of both; before that,
// the containers.
func TestTheCopierComparesAnEncryptedOverlayAsTheGuestSeesIt(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: left to make test-simulation")
	}
	dir := t.TempDir()
	key, src, dst, ovl := filepath.Join(dir, "key"), filepath.Join(dir, "src"), filepath.Join(dir, "dst"), filepath.Join(dir, "ovl")
	expect.OK(t, os.WriteFile(key, []byte("a passphrase"), 0o600))
	tool := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	object := []string{"--object", "secret,id=s,file=" + key}
	tool("qemu-img", append([]string{"create", "-q", "-f", "luks", "-o", "key-secret=s,iter-time=20"}, append(object, src, "1M")...)...)
	container, err := os.ReadFile(src)
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(dst, container, 0o600))

	opened := func(img hv.Image) hv.Image { img.LUKSSecret = migratetest.LUKSSecret; return img }
	from, to := opened(rawFile(src)), opened(rawFile(dst))
	chain := []hv.Image{opened(hv.Image{Type: hv.SourceFile, Format: "qcow2", Path: ovl}), from}
	storage := image.Storage{Secret: func(context.Context, string) ([]byte, error) { return []byte("a passphrase"), nil }}
	payload, err := storage.PayloadBytes(t.Context(), from)
	expect.OK(t, err)
	if payload != 1<<20 {
		t.Errorf("the guest sees %d bytes", payload)
	}
	expect.OK(t, storage.CreateOverlay(t.Context(), ovl, from, payload, nil))

	c := transfer.NewCopier(filepath.Join(dir, "cursors"), sandbox.Privileged{}.ThinBlockBytes, network.Access{}, slog.New(slog.DiscardHandler))
	c.Passphrase = storage.Passphrase
	compare := func(chain []hv.Image, sizeBytes int64) error {
		return c.Compare(t.Context(), chain, []hv.Image{to}, sizeBytes, func(move.Progress) {})
	}
	expect.OK(t, compare([]hv.Image{from}, int64(len(container))))
	expect.OK(t, compare(chain, payload))
	tool("qemu-io", append(object, "--image-opts", "-c", "write -P 7 64k 4k",
		"driver=qcow2,encrypt.format=luks,encrypt.key-secret=s,file.filename="+ovl+",backing.driver=luks,backing.key-secret=s,backing.file.filename="+src)...)
	if err := compare(chain, payload); api.CodeOf(err) != api.CodeCopyMismatch {
		t.Errorf("before the fold: %v", err)
	}
	expect.OK(t, storage.Fold(t.Context(), ovl, []hv.Image{to}))
	expect.OK(t, compare(chain, payload))
	if err := compare([]hv.Image{from}, int64(len(container))); api.CodeOf(err) != api.CodeCopyMismatch {
		t.Errorf("the containers after it: %v", err)
	}
}
