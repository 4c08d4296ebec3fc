// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/test/lab"
)

func (e *realEnv) Export(tb testing.TB, sizeBytes int64) hv.Image {
	tb.Helper()
	path := e.Path(tb, "export.img")
	e.CreateImage(tb, path, hvtest.Raw, sizeBytes)
	export, err := lab.Serve(context.Background(), path, "web", e.Path(tb, "export.sock"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := export.Close(); err != nil {
			tb.Error(err)
		}
	})
	return hv.Image{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: export.URI()}
}

// exportXML returns the <source> of an export, or of its beginning.
func exportXML(img hv.Image) (string, error) {
	slices := ""
	if img.SliceBytes != 0 {
		slices = fmt.Sprintf("<slices><slice type='storage' offset='0' size='%d'/></slices>", img.SliceBytes)
	}
	e, err := medium.ParseNBD(img.Path)
	return fmt.Sprintf("<source protocol='nbd' name='%s'><host transport='unix' socket='%s'/>%s</source>", e.Name, e.Socket, slices), err
}
