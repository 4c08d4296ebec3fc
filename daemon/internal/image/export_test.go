// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

const exportBytes = 8 << 20

// serve lets QEMU serve an empty image.
func serve(t *testing.T) *lab.Export {
	t.Helper()
	if _, err := exec.LookPath("qemu-nbd"); err != nil {
		t.Skip("SKIPPED: no qemu-nbd: ", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "image")
	f, err := os.Create(file)
	if err == nil {
		err = f.Truncate(exportBytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	export, err := lab.Serve(t.Context(), file, "web", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = export.Close() })
	return export
}

func TestAnExportWhoseServerIsAwayIsNotAbsent(t *testing.T) {
	export := serve(t)
	var s image.Storage
	l := api.Location{Path: export.URI(), Format: api.FormatRaw}
	if info, err := s.Inspect(t.Context(), l); err != nil || info.SizeBytes != exportBytes || info.Block {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := s.Inspect(t.Context(), api.Location{Path: export.URI(), Format: api.FormatQcow2}); api.CodeOf(err) != api.CodeUnsupportedDisk {
		t.Errorf("as qcow2: %v", err)
	}
	_ = export.Close()
	if _, err := s.Inspect(t.Context(), l); api.CodeOf(err) != api.CodeStateForbidden {
		t.Errorf("without its server: %v", err)
	}
	if _, err := s.Stamp(t.Context(), export.URI()); err == nil {
		t.Error("without its server it has a stamp")
	}
}
