// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

const (
	luksSecret     = "2f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11"
	luksPassphrase = "a passphrase of the lab"
	luksPlaintext  = "what the guest has on its encrypted disk"
)

// luksDisk makes a LUKS container with a plaintext in it, and gives it to a guest that is off.
func (h *host) luksDisk(t *testing.T, g *guest, dir string) (path string) {
	t.Helper()
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := file("secret.xml", `<secret ephemeral='no' private='no'><uuid>`+luksSecret+`</uuid></secret>`)
	h.virsh(t, "secret-define", secret)
	t.Cleanup(func() {
		if _, err := h.Libvirtd.Virsh(context.WithoutCancel(t.Context()), "secret-undefine", luksSecret); err != nil {
			t.Error(err)
		}
	})
	passphrase := file("passphrase", luksPassphrase)
	h.virsh(t, "secret-set-value", luksSecret, "--file", passphrase, "--plain")

	path = filepath.Join(dir, fmt.Sprintf("luks-%d.raw", h.number()))
	object := "secret,id=s,file=" + passphrase
	tool(t, "qemu-img", "create", "-q", "-f", "luks", "--object", object, "-o", "key-secret=s,iter-time=10", path, "16M")
	plain := file("plain", luksPlaintext)
	if err := os.Truncate(plain, 16<<20); err != nil {
		t.Fatal(err)
	}
	tool(t, "qemu-img", "convert", "-n", "--object", object, "--image-opts", "--target-image-opts",
		"driver=raw,file.filename="+plain, "driver=luks,key-secret=s,file.filename="+path)
	disk := file("disk.xml", `<disk type='file' device='disk'><driver name='qemu' type='raw' cache='none'/><source file='`+path+`'>`+
		`<encryption format='luks'><secret type='passphrase' uuid='`+luksSecret+`'/></encryption></source><backingStore/><target dev='vdb' bus='virtio'/></disk>`)
	h.virsh(t, "attach-device", g.Name, disk, "--config")
	return path
}

// content is a file as it is on the disk.
func content(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestALUKSContainerMovesByteForByteWhileItsGuestIsOffAndTheGuestOpensItThere(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	g := h.defineGuest(t, h.diskIn(t, a, api.FormatRaw))
	path := h.luksDisk(t, g, a)
	g.slots = g.persistentSlots(t)
	g.adopt(t)
	want := content(t, path)
	if at := g.volume(t, "vdb").Location; at.LUKSSecret != luksSecret || at.Format != api.FormatRaw || at.SizeBytes != int64(len(want)) {
		t.Fatalf("adopted at %+v", at)
	}

	h.virsh(t, "start", g.Name)
	e := h.refuses(t, api.CodeUnsupportedDisk, "volume", "migrate", g.volumeName("vdb"), "--to-pool", "b")
	mustContain(t, e.Message, "encrypted by QEMU (LUKS)", "stop")
	h.virsh(t, "destroy", g.Name)

	v := g.start(t, "vdb", "--to-pool", "b")
	if _, err := h.Libvirtd.Virsh(t.Context(), "start", g.Name); err == nil {
		t.Fatal("the guest started while its disk is copied")
	}
	v.copy(t)
	v.cancel(t)
	device := h.device(t, b, int64(len(want)))
	for _, to := range [][]string{{"--to-pool", "b"}, {"--to-path", device.Path}, {"--to-pool", "a"}} {
		m := get[api.Migration](t, h, "migration", append([]string{"volume", "migrate", g.volumeName("vdb")}, to...)...)
		if m.State != api.MigrationCompleted || m.Method != "offline" || m.Dst.LUKSSecret != luksSecret {
			t.Fatalf("ended as %+v", m)
		}
		if !bytes.Equal(content(t, m.Dst.Path), want) || bytes.Contains(want, []byte(luksPlaintext)) {
			t.Error("the container is another, or has plaintext in it")
		}
		if xml := h.virsh(t, "dumpxml", g.Name, "--inactive"); !strings.Contains(xml, m.Dst.Path) || !strings.Contains(xml, luksSecret) {
			t.Errorf("the definition is %s", xml)
		}
		h.virsh(t, "start", g.Name) // QEMU opens the container with the secret, or does not start
		h.virsh(t, "destroy", g.Name)
	}
	g.settled = true
}
