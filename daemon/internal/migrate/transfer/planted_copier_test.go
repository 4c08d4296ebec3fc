// SPDX-License-Identifier: Apache-2.0

package transfer_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// The link is planted after all checks, in the place of src, or of dst.
func TestACopyOpensNothingThroughALinkInAPool(t *testing.T) {
	for _, end := range []string{"src", "dst"} {
		t.Run(end, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			expect.OK(t, err)
			const size = 1 << 20
			pool, secret := filepath.Join(dir, "pool"), filepath.Join(dir, "secret")
			expect.OK(t, errors.Join(os.Mkdir(pool, 0o700), os.Mkdir(dir+"/cursors", 0o700), os.WriteFile(secret, make([]byte, size), 0o600)))
			ends := map[string]string{"src": pool + "/src.raw", "dst": pool + "/dst.raw"}
			for _, path := range ends {
				expect.OK(t, errors.Join(os.WriteFile(path, []byte("what the guest wrote"), 0o600), os.Truncate(path, size)))
			}
			expect.OK(t, errors.Join(os.Remove(ends[end]), os.Symlink(secret, ends[end])))
			host := hvtest.New()
			host.AddPool(hv.PoolInfo{Name: "pool", Type: "dir", Path: pool, Active: true})
			c := transfer.NewCopier(dir+"/cursors", sandbox.Privileged{}.ThinBlockBytes, network.Access{}, slog.New(slog.DiscardHandler))
			c.Files = openfile.Files{Places: location.Rules{Storage: host}}
			_, err = c.Copy(t.Context(), move.CopyRequest{
				Key: "k", Src: []hv.Image{rawFile(ends["src"])}, Dst: []hv.Image{rawFile(ends["dst"])}, SizeBytes: size,
				Options: func() api.CopyOptions { return api.CopyOptions{Verify: api.VerifyFull} }, Progress: func(move.Progress) {},
			})
			if api.CodeOf(err) != api.CodePermissionDenied || !strings.Contains(err.Error(), "symbolic link "+ends[end]) {
				t.Errorf("got %v, want a refusal that names the link %s", err, ends[end])
			}
			for path, begins := range map[string]string{secret: strings.Repeat("\x00", 20), ends[map[string]string{"src": "dst", "dst": "src"}[end]]: "what the guest wrote"} {
				if text, err := os.ReadFile(path); err != nil || string(text[:20]) != begins {
					t.Errorf("%s was written (%v)", path, err)
				}
			}
		})
	}
}
