// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// definePooled makes a domain with a volume of the pool, named by pool and volume, as vda.
func (e *realEnv) definePooled(t *testing.T) (id string, src hv.Image) {
	t.Helper()
	id = uuid.NewString()
	name := "pooled-" + id[:8]
	e.virsh(t, "vol-create-as", e.pool, name, "1M", "--format", "qcow2")
	t.Cleanup(func() { e.virsh(t, "vol-delete", name, e.pool) })
	src = hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: e.dir + "/pool/" + name}
	var doc strings.Builder
	must(t, domainXML.Execute(&doc, hv.Domain{ID: id, Name: "real-" + id[:8], MemoryBytes: 32 << 20, Config: []hv.Disk{
		{Target: "vda", Bus: "virtio", Device: "disk", Chain: []hv.Image{src}},
	}}))
	text := strings.NewReplacer(
		"<disk type='file'", "<disk type='volume'",
		"<source file='"+src.Path+"'/>", "<source pool='"+e.pool+"' volume='"+name+"'/>",
		"<backingStore/>", "",
	).Replace(doc.String())
	if !strings.Contains(text, "pool='"+e.pool+"'") {
		t.Fatalf("no volume of a pool in:\n%s", text)
	}
	e.defineXML(t, "pooled", text)
	t.Cleanup(func() { e.virsh(t, "undefine", id) })
	return id, src
}

func (e *realEnv) wantChains(t *testing.T, id string, live, config []hv.Image) {
	t.Helper()
	dom, err := e.conn.Domain(t.Context(), id)
	must(t, err)
	if d := dom.LiveDisk("vda"); d != nil || live != nil {
		if diff := cmp.Diff(live, d.Chain); diff != "" {
			t.Errorf("live chain (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(config, dom.ConfigDisk("vda").Chain); diff != "" {
		t.Errorf("persistent chain (-want +got):\n%s", diff)
	}
}

// testPooled makes all changes of a move to a disk that is named by its pool.
func testPooled(t *testing.T, env *realEnv) {
	id, src := env.definePooled(t)
	srcChain := []hv.Image{src}
	env.wantChains(t, id, nil, srcChain)
	env.Start(t, id)
	defer env.Destroy(t, id)
	env.wantChains(t, id, srcChain, srcChain)
	if doc := env.virsh(t, "dumpxml", "--inactive", id); !strings.Contains(doc, "type='volume'") {
		t.Errorf("to read a definition has changed it:\n%s", doc)
	}
	overlay := hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: env.Path(t, "overlay.qcow2")}
	env.CreateOverlay(t, overlay.Path, src, 1<<20)
	both := []hv.Image{overlay, src}
	must(t, env.conn.SetConfigChain(t.Context(), id, "vda", both))
	_, err := env.conn.Snapshot(t.Context(), id, "vda", overlay)
	must(t, err)
	env.wantChains(t, id, both, both)
	env.GuestWrite(t, id, "vda", 0, 7)
	must(t, env.conn.CommitActive(t.Context(), id, "vda", 0))
	env.pivot(t, id)
	must(t, env.conn.SetConfigChain(t.Context(), id, "vda", srcChain))
	env.wantChains(t, id, srcChain, srcChain)
	env.CheckGuest(t, id, "vda", 0, 7)

	dst := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: env.Path(t, "dst.raw")}
	env.CreateImage(t, dst.Path, dst.Format, 1<<20)
	must(t, env.conn.BlockCopy(t.Context(), id, "vda", dst, hv.BlockCopyOptions{}))
	env.pivot(t, id)
	must(t, env.conn.SetConfigChain(t.Context(), id, "vda", []hv.Image{dst}))
	env.wantChains(t, id, []hv.Image{dst}, []hv.Image{dst})
	env.CheckGuest(t, id, "vda", 0, 7)
	if files, err := env.conn.OpenFiles(t.Context(), id, src.Path); err != nil || len(files) > 0 {
		t.Errorf("the process still has the volume of the pool open: %v, %v", files, err)
	}
}

func (e *realEnv) pivot(t *testing.T, id string) {
	t.Helper()
	e.awaitReady(t, id)
	must(t, e.conn.Pivot(t.Context(), id, "vda"))
}

func testPoolGone(t *testing.T, env *realEnv) {
	dir := t.TempDir()
	env.virsh(t, "pool-define-as", "gone", "dir", "--target", dir)
	t.Cleanup(func() { env.virsh(t, "pool-undefine", "gone") })
	id, _ := env.define(t)
	doc := env.virsh(t, "dumpxml", id)
	from := strings.Index(doc, "<source file=")
	end := from + strings.Index(doc[from:], "/>") + len("/>")
	env.defineXML(t, "gone", strings.Replace(doc[:from]+"<source pool='gone' volume='x'/>"+doc[end:], "<disk type='file'", "<disk type='volume'", 1))
	env.wantChains(t, id, nil, []hv.Image{{Type: "volume", Format: hvtest.Raw}})
}
