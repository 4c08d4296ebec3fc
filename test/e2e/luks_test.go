// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/kinds"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

const luksPassphrase = "a passphrase of the lab"

// defineSecret defines a secret of libvirt's, with the value that it has.
func (h *host) defineSecret(t *testing.T, id, private string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret.xml")
	xml := `<secret ephemeral='no' private='` + private + `'><uuid>` + id + `</uuid></secret>`
	if err := os.WriteFile(file, []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	h.virsh(t, "secret-define", file)
}

// luksIn makes a filled volume that QEMU encrypts, for a guest.
func (h *host) luksIn(t *testing.T, dir string) lab.Disk {
	t.Helper()
	key := filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(key, []byte(luksPassphrase), 0o600); err != nil {
		t.Fatal(err)
	}
	id := uuid.NewString()
	h.defineSecret(t, id, "no")
	h.virsh(t, "secret-set-value", id, "--file", key, "--plain")
	t.Cleanup(func() {
		if _, err := h.Libvirtd.Virsh(context.WithoutCancel(t.Context()), "secret-undefine", id); err != nil {
			t.Error(err)
		}
	})
	d := h.diskIn(t, dir, api.FormatRaw)
	d.LUKS = &lab.LUKS{Secret: id, KeyFile: key}
	raw := d.Path
	d.Path = filepath.Join(dir, fmt.Sprintf("luks-%d.raw", h.number()))
	if err := d.LUKS.Encrypt(t.Context(), raw, d.Path, volumeBytes); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(raw); err != nil {
		t.Fatal(err)
	}
	return d
}

// luksOn is luksIn on a block device, which is as large as the container.
func (h *host) luksOn(t *testing.T, dir string) lab.Disk {
	t.Helper()
	d := h.luksIn(t, dir)
	device := h.device(t, dir, int64(len(content(t, d.Path))))
	dd(t, d.Path, device.Path)
	if err := os.Remove(d.Path); err != nil {
		t.Fatal(err)
	}
	d.Path = device.Path
	return d
}

// content is a file, or a device, as it is on the disk.
func content(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// assertNoPlaintext claims that nothing of what the guest has on a disk is in a file.
func assertNoPlaintext(t *testing.T, d lab.Disk, path string) {
	t.Helper()
	record := make([]byte, workload.BlockSize)
	workload.PutRecord(record, d.Seed, 1, 0)
	if bytes.Contains(content(t, path), record[:8]) {
		t.Errorf("%s has plaintext in it", path)
	}
}

// assertPassphraseHidden claims that no process was given the passphrase but in an open file, and
// that no file and no log has it. libvirtd keeps it among its secrets.
func (h *host) assertPassphraseHidden(t *testing.T, key string) {
	t.Helper()
	for _, file := range glob(t, "/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ") {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(luksPassphrase)) { // not gone since
			t.Errorf("%s has the passphrase: %q", file, text)
		}
	}
	err := filepath.WalkDir(h.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || path == key || strings.HasPrefix(path, filepath.Join(h.Libvirtd.EtcDir, "secrets")) {
			return nil //nolint:nilerr // what is gone has no passphrase
		}
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(luksPassphrase)) {
			t.Errorf("%s has the passphrase", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(h.Logs(), luksPassphrase) {
		t.Error("a log has the passphrase")
	}
}

func (v *move) overlay() string { return filepath.Join(v.g.host.Overlays(), v.ID+".qcow2") }

func TestALUKSContainerMovesUnderItsRunningGuestEncryptedAllTheTime(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	d := h.luksIn(t, a)
	g := h.runningGuest(t, d)
	if at := g.volume(t, "vda").Location; at.LUKSSecret != d.LUKS.Secret || at.SizeBytes <= volumeBytes {
		t.Fatalf("adopted at %+v", at)
	}
	e := h.refuses(t, api.CodeUnsupportedDisk, "volume", "migrate", g.volumeName("vda"), "--to-pool", "b", "--method", "mirror")
	mustContain(t, e.Message, "header")

	v := g.start(t, "vda", "--to-pool", "b", "--bandwidth", "8MiB/s")
	v.copyThroughDeath(t)
	g.writes(t)
	assertNoPlaintext(t, d, v.overlay())
	assertNoPlaintext(t, d, v.Dst.Path)
	h.assertPassphraseHidden(t, d.LUKS.KeyFile)
	v.complete(t)
	if v.Method != api.MethodOverlay || v.Dst.LUKSSecret != d.LUKS.Secret {
		t.Errorf("it went to %+v by %s", v.Dst, v.Method)
	}
	g.writes(t)
	g.assertSettled(t)
	assertNoPlaintext(t, d, v.Dst.Path)

	g.boot(t)
	v = g.start(t, "vda", "--to-pool", "a")
	v.copy(t)
	g.writes(t)
	v.cancel(t)
	g.writes(t)
	g.assertSettled(t)
	assertNoPlaintext(t, d, v.Src.Path)
	h.assertPassphraseHidden(t, d.LUKS.KeyFile)
}

func TestALUKSContainerMovesWhileItsGuestIsStoppedAndStarted(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	d := h.luksIn(t, a)
	g := h.runningGuest(t, d)
	device := h.device(t, b, g.volume(t, "vda").Location.SizeBytes)

	v := g.start(t, "vda", "--to-path", device.Path)
	g.writes(t)
	g.powerOff(t)
	g.boot(t) // from the overlay
	v.copy(t)
	g.writes(t)
	g.powerOff(t)
	v.finish(t)
	g.boot(t)
	g.assertSettled(t)
	assertNoPlaintext(t, d, device.Path)

	g.boot(t)
	v = g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	g.powerOff(t)
	v.cancel(t)
	g.boot(t)
	g.assertSettled(t)

	v = g.start(t, "vda", "--to-pool", "b") // of a guest that is off, and goes on meanwhile
	g.boot(t)
	v.copy(t)
	v.complete(t)
	g.assertSettled(t)
}

func TestALUKSContainerWithAPrivateSecretMovesByteForByteWhileItsGuestIsOff(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	d := h.luksIn(t, a)
	g := h.runningGuest(t, d)
	h.defineSecret(t, d.LUKS.Secret, "yes")
	e := h.refuses(t, api.CodeUnsupportedDisk, "volume", "migrate", g.volumeName("vda"), "--to-pool", "b")
	mustContain(t, e.Message, "encrypted by QEMU (LUKS)", "private", "stop")
	g.powerOff(t)
	want := content(t, d.Path)
	v := g.start(t, "vda", "--to-pool", "b")
	if _, err := h.Libvirtd.Virsh(t.Context(), "start", g.Name); err == nil {
		t.Fatal("the guest started while its disk is copied")
	}
	v.copy(t)
	v.finish(t)
	if v.Method != methodOffline || !bytes.Equal(content(t, v.Dst.Path), want) {
		t.Errorf("by %s the container became another", v.Method)
	}
	g.boot(t) // QEMU opens the container with the secret, or does not start
	g.assertSettled(t)
}

func TestALUKSContainerOnADeviceMovesUnderItsRunningAndItsPausedGuest(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	d := h.luksOn(t, a)
	first := d.Path
	second := h.device(t, a, int64(len(content(t, first)))).Path
	g := h.runningGuest(t, d)
	if at := g.volume(t, "vda").Location; at.Path != first || at.LUKSSecret != d.LUKS.Secret {
		t.Fatalf("adopted at %+v", at)
	}

	v := g.start(t, "vda", "--to-path", second)
	v.copy(t)
	g.writes(t)
	v.cancel(t)
	g.assertSettled(t)
	g.boot(t)
	v = g.start(t, "vda", "--to-path", second, "--yes")
	g.writes(t)
	v.copy(t)
	assertNoPlaintext(t, d, v.overlay())
	v.complete(t)
	assertNoPlaintext(t, d, second)
	g.writes(t)
	g.assertSettled(t)

	g.boot(t)
	g.pause(t)
	v = g.start(t, "vda", "--to-path", first, "--yes")
	v.copy(t)
	v.cancel(t)
	for _, to := range [][]string{{"--to-pool", "b"}, {"--to-path", first, "--yes"}, {"--to-pool", "a"}, {"--to-pool", "b"}} {
		m := g.migrate(t, "vda", to...)
		if m.Method != api.MethodOverlay || m.Dst.LUKSSecret != d.LUKS.Secret {
			t.Errorf("it went to %+v by %s", m.Dst, m.Method)
		}
		if state := g.state(t); state != "paused" {
			t.Errorf("the guest was paused by its user, and is %s after the move", state)
		}
		g.assertAtRest(t)
		assertNoPlaintext(t, d, m.Dst.Path)
	}
	g.resume(t)
	g.assertSettled(t)
	h.assertPassphraseHidden(t, d.LUKS.KeyFile)
}

// Its instance was forgotten and has no domain any more: the registry alone knows which secret
// opens it.
func TestALUKSContainerThatNoInstanceHasMovesByteForByteAndIsFoundByItsDomain(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	d := h.luksIn(t, a)
	want := content(t, d.Path)
	device := h.device(t, a, int64(len(want)))
	g := h.stoppedGuest(t, d)
	name, id := g.volumeName("vda"), g.volume(t, "vda").ID
	xml := h.virsh(t, "dumpxml", g.Name, "--inactive")
	h.ctl(t, "instance", "forget", g.Name)
	mustContain(t, h.refuses(t, api.CodeVolumeInUse, "volume", "migrate", name, "--to-pool", "b").Message, g.Name)
	h.virsh(t, "undefine", g.Name)
	h.refuses(t, api.CodeInvalidArgument, "volume", "migrate", name, "--to-pool", "b", "--to-format", "qcow2")

	var at api.Location
	for _, to := range [][]string{{"--to-path", device.Path}, {"--to-pool", "b"}} {
		m := get[api.Migration](t, h, "migration", append([]string{"volume", "migrate", name}, to...)...)
		if at = m.Dst; m.State != api.MigrationCompleted || m.Method != methodOffline || at.LUKSSecret != d.LUKS.Secret {
			t.Fatalf("it is %s, by %s to %+v", m.State, m.Method, at)
		}
		h.noteMove(t, m, kinds.NoGuest)
		if !bytes.Equal(content(t, at.Path), want) {
			t.Errorf("at %s the container became another", at.Path)
		}
	}

	file := filepath.Join(t.TempDir(), "domain.xml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(xml, d.Path, at.Path)), 0o600); err != nil {
		t.Fatal(err)
	}
	h.virsh(t, "define", file)
	g.adopt(t)
	if v := g.volume(t, "vda"); v.ID != id || v.Location != at {
		t.Errorf("its domain has volume %s at %+v, want %s at %+v", v.ID, v.Location, id, at)
	}
	g.boot(t) // QEMU opens the container with the secret, or does not start
	g.assertSettled(t)
}

// Nobody has said which secret opens it, and nobody looks: it is moved as the bytes that it is, and
// is no disk of a domain that opens it as LUKS.
func TestALUKSContainerThatIsAdoptedByItsPathIsARawImageUntilItIsForgotten(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	d := h.luksIn(t, a)
	want := content(t, d.Path)
	h.refuses(t, api.CodeInvalidArgument, "volume", "adopt", "data", "--path", d.Path, "--format", "luks")
	h.ctl(t, "volume", "adopt", "data", "--path", d.Path, "--format", "raw")
	m := get[api.Migration](t, h, "migration", "volume", "migrate", "data", "--to-pool", "b")
	h.noteMove(t, m, kinds.NoGuest)
	if m.State != api.MigrationCompleted || m.Dst.LUKSSecret != "" || !bytes.Equal(content(t, m.Dst.Path), want) {
		t.Errorf("it is %s at %+v, and may have become another", m.State, m.Dst)
	}
	d.Path = m.Dst.Path
	g := h.defineGuest(t, d)
	g.adopt(t)
	slots := g.instance.BlockDeviceMappings
	if len(slots) != 1 || slots[0].VolumeID != nil {
		t.Fatalf("block device mappings: %+v, want vda without a volume", slots)
	}
	mustContain(t, slots[0].Note, "as LUKS with the secret "+d.LUKS.Secret, "volume data", "without a secret", "volferryctl volume forget data")
	h.ctl(t, "instance", "forget", g.Name)
	h.ctl(t, "volume", "forget", "data")
	g.adopt(t)
	if at := g.volume(t, "vda").Location; at.Path != d.Path || at.LUKSSecret != d.LUKS.Secret {
		t.Errorf("adopted with its instance it is at %+v", at)
	}
	g.assertSettled(t)
}
