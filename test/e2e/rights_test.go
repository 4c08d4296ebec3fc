// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// The attributes of a file that have its access list and its label.
const (
	attrACL   = "system.posix_acl_access"
	attrLabel = "security.selinux"
)

// giveAway makes an image somebody's, with an access list for another user and a label, and
// returns its rights.
func giveAway(t *testing.T, path string) (rights string) {
	t.Helper()
	acl := binary.LittleEndian.AppendUint32(nil, 2)
	for _, entry := range []struct {
		tag, allowed uint16
		id           uint32
	}{{0x01, 6, 1<<32 - 1}, {0x02, 4, 65534}, {0x04, 4, 1<<32 - 1}, {0x10, 4, 1<<32 - 1}, {0x20, 0, 1<<32 - 1}} {
		acl = binary.LittleEndian.AppendUint16(acl, entry.tag)
		acl = binary.LittleEndian.AppendUint16(acl, entry.allowed)
		acl = binary.LittleEndian.AppendUint32(acl, entry.id)
	}
	if err := errors.Join(
		os.Chown(path, 1234, 77), os.Chmod(path, 0o640), unix.Setxattr(path, attrACL, acl, 0),
		unix.Setxattr(path, attrLabel, []byte("system_u:object_r:virt_content_t:s0\x00"), 0),
	); err != nil {
		t.Fatal(err)
	}
	return rightsOn(t, path)
}

// rightsOn are owner, mode, access list and label of an image, as text.
func rightsOn(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%d:%d %04o", st.Uid, st.Gid, st.Mode&0o7777)
	for _, name := range []string{attrACL, attrLabel} {
		value := make([]byte, 1<<10)
		n, err := unix.Getxattr(path, name, value)
		if err != nil && !errors.Is(err, unix.ENODATA) {
			t.Fatal(err)
		}
		text += fmt.Sprintf(" %q", value[:max(n, 0)])
	}
	return text
}

func wantRights(t *testing.T, what, path, want string) {
	t.Helper()
	if got := rightsOn(t, path); got != want {
		t.Errorf("rights on %s, %s:\n got %s\nwant %s", what, path, got, want)
	}
}

// Owner, mode, access list and label of a volume stay what they are, wherever its bytes are,
// once no guest has it.
func TestRightsOnAVolumeSurviveItsMoves(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	for _, format := range []api.Format{api.FormatRaw, api.FormatQcow2} {
		t.Run(string(format), func(t *testing.T) {
			g := h.defineGuest(t, h.diskIn(t, a, format))
			want := giveAway(t, g.disks[0].Path)
			g.adopt(t)
			g.boot(t)
			other := func() string { return otherPool(g.volume(t, "vda")) }
			// off claims that, with the guest off, both ends of a migration are their owner's.
			off := func(m api.Migration) {
				t.Helper()
				if g.state(t) != "shut off" {
					g.powerOff(t)
				}
				wantRights(t, "src", m.Src.Path, want)
				if m.State == api.MigrationCompleted {
					wantRights(t, "dst", m.Dst.Path, want)
				}
			}

			t.Log("moved while it runs, by either method")
			for _, method := range []string{"overlay", "mirror"} {
				m := g.migrate(t, "vda", "--to-pool", other(), "--method", method)
				wantRights(t, "src, released while the guest runs", m.Src.Path, want)
				off(m)
				g.boot(t)
			}
			t.Log("moved while it is off, into a pool and to a path")
			g.powerOff(t)
			off(g.migrate(t, "vda", "--to-pool", other()))
			path := filepath.Join(map[string]string{"a": a, "b": b}[other()], "moved-"+g.Name)
			off(g.migrate(t, "vda", "--to-path", path))
			g.boot(t)
			for name, begin := range map[string]func() *move{
				"runs at the start": func() *move { return g.start(t, "vda", "--to-pool", other()) },
				"is off at the start and runs then": func() *move {
					g.powerOff(t)
					v := g.start(t, "vda", "--to-pool", other())
					g.boot(t)
					return v
				},
				"ran in the middle": func() *move {
					v := g.start(t, "vda", "--to-pool", other())
					g.powerOff(t)
					return v
				},
			} {
				t.Log("the guest", name)
				v := begin()
				v.cancel(t)
				off(v.Migration)
				g.boot(t)
				v = begin()
				v.copy(t)
				v.finish(t)
				off(v.Migration)
				g.boot(t)
			}
			g.assertSettled(t)
		})
	}
}

func TestRightsOnAVolumeThatIsNotAttachedSurviveItsMoves(t *testing.T) {
	h, a, b := sharedPools(t)
	d := h.diskIn(t, a, api.FormatRaw)
	want := giveAway(t, d.Path)
	h.ctl(t, "volume", "adopt", "given-away", "--path", d.Path, "--format", "raw")
	there := filepath.Join(b, "there.raw")
	if err := errors.Join(os.WriteFile(there, nil, 0o604), os.Truncate(there, volumeBytes)); err != nil {
		t.Fatal(err)
	}
	before := rightsOn(t, there)
	for _, to := range [][]string{{"--to-pool", "b"}, {"--to-pool", "a", "--to-format", "qcow2"}, {"--to-path", there, "--to-format", "raw"}} {
		m := get[api.Migration](t, h, "migration", append([]string{"volume", "migrate", "given-away"}, to...)...)
		if m.Dst.Path != there {
			wantRights(t, "dst", m.Dst.Path, want)
		} else {
			wantRights(t, "a dst that was there before", there, before)
		}
	}
	h.ctl(t, "volume", "delete", "given-away", "--yes")
}

// Where libvirt gives QEMU no image, as some do with images on NFS, a volume that QEMU may
// open moves like any other. A destination that it may not open is refused before anything
// is frozen, and such a volume is not attached.
func TestAVolumeMovesWhereLibvirtGivesQEMUNoImage(t *testing.T) {
	leftToTestE2E(t)
	lab.Require(t)
	dir := lab.TempDir(t)
	conf := filepath.Join(dir, "virt", "etc", "qemu.conf")
	const settings = "security_driver = \"none\"\ncgroup_controllers = []\ndynamic_ownership = 0\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(conf), 0o755), os.WriteFile(conf, []byte(settings), 0o600)); err != nil {
		t.Fatal(err)
	}
	h := startHostIn(t, dir)
	qemu, err := user.Lookup("libvirt-qemu")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(qemu.Uid)
	if err != nil {
		t.Fatal(err)
	}
	g := h.defineGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	if err := os.Chown(g.disks[0].Path, uid, 0); err != nil {
		t.Fatal(err)
	}
	want := rightsOn(t, g.disks[0].Path)
	g.boot(t)
	g.adopt(t)
	shut := filepath.Join(h.poolB, "shut.raw")
	if err := errors.Join(os.WriteFile(shut, nil, 0o600), os.Truncate(shut, volumeBytes)); err != nil {
		t.Fatal(err)
	}
	e := g.refusesToMove(t, "vda", api.CodePermissionDenied, "--to-path", shut)
	mustContain(t, e.Message, "libvirt-qemu", shut, "dynamic_ownership", "chown")
	h.ctl(t, "volume", "adopt", "shut", "--path", shut, "--format", "raw")
	e = h.refuses(t, api.CodePermissionDenied, "volume", "attach", "shut", g.Name)
	mustContain(t, e.Message, "libvirt-qemu", shut, "chown")
	if err := os.Chown(shut, uid, 0); err != nil {
		t.Fatal(err)
	}
	h.ctl(t, "volume", "attach", "shut", g.Name)
	h.ctl(t, "volume", "detach", "shut", g.Name)
	m := g.migrate(t, "vda", "--to-pool", "b")
	wantRights(t, "dst", m.Dst.Path, want)
	g.assertSettled(t)
}
