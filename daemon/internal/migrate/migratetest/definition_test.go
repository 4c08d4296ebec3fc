// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/expect"
)

func TestADefinitionThatLacksAWriteFailsTheWorld(t *testing.T) {
	w := NewWorld(t, hv.StateRunning)
	w.WatchDefinition()
	expect.OK(t, w.CreateImage(DstPath, hvtest.Raw, Size))
	expect.OK(t, w.SetConfigChain(context.Background(), Instance, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: DstPath}}))
	expect.Value(w.Domain(context.Background(), Instance))(t)
	expect.OK(t, w.SetConfigChain(context.Background(), Instance, "vda", []hv.Image{w.Src}))
	if err := w.Settled(SrcPath); err == nil || !strings.Contains(err.Error(), "the definition names") {
		t.Errorf("the world says %v", err)
	}
}
