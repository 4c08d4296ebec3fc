// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/confined/evidence"
	"github.com/volferry/volferry/test/lab"
)

// phaseImage is an image of a disk in a phase of a move. QEMU has it open to write, to read, or not
// at all.
type phaseImage struct{ name, path, open string }

// phases are the phases of a move of a guest's disk.
type phases struct {
	g    *guest
	move string
}

// look logs the owners and labels of the images in a phase, and claims that QEMU has the images
// open as it should, that QEMU's user owns the open images, and that an image that is open to
// write has the guest's categories, if SELinux confines the guest.
func (p phases) look(t *testing.T, phase string, images ...phaseImage) {
	t.Helper()
	context, uid := "", ""
	running := p.g.state(t) == "running"
	if running {
		context, uid = p.g.confinement(t)
	}
	for _, img := range images {
		var st unix.Stat_t
		if err := unix.Stat(img.path, &st); err != nil {
			t.Fatal(err)
		}
		label := labelOf(t, img.path)
		var modes []string
		if running {
			modes = p.g.openModes(t, img.path)
		}
		t.Log(evidence.Image{
			Move: p.move, Phase: phase, Image: img.name, Open: strings.Join(modes, ", "),
			Owner: ownerName(st.Uid, st.Gid), Mode: fmt.Sprintf("%04o", st.Mode&0o7777), Label: label, QEMU: context,
		})
		opened := ""
		if len(modes) > 0 {
			opened = modes[len(modes)-1] // write is after read
		}
		switch {
		case opened != img.open:
			t.Errorf("%s: QEMU has the %s open to %q, want %q", phase, img.name, modes, img.open)
		case img.open != "" && strconv.Itoa(int(st.Uid)) != uid:
			t.Errorf("%s: the %s belongs to user %d, and QEMU runs as user %s", phase, img.name, st.Uid, uid)
		case img.open == "write" && categories(label) != categories(context):
			t.Errorf("%s: the %s has the label %s, and QEMU runs as %s", phase, img.name, label, context)
		}
	}
}

// confinement returns the profile or context of the guest's QEMU, empty without a security module,
// and QEMU's user. On a machine that confines guests it claims that the guest is confined.
func (g *guest) confinement(t *testing.T) (context, uid string) {
	t.Helper()
	process := filepath.Join("/proc", strconv.Itoa(g.pid(t)))
	text, err := os.ReadFile(filepath.Join(process, "attr/current"))
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, os.ErrNotExist) { // no security module
		t.Fatal(err)
	}
	context = strings.TrimRight(string(text), "\x00\n")
	if lab.Confined() && context != "libvirt-"+g.UUID+" (enforce)" && categories(context) == "" {
		t.Errorf("the QEMU of guest %s runs as %q", g.Name, context)
	}
	status, err := os.ReadFile(filepath.Join(process, "status"))
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`\nUid:\s+\d+\s+(\d+)`).FindSubmatch(status); found != nil {
		return context, string(found[1])
	}
	t.Fatalf("%s has no user", process)
	return "", ""
}

// categories returns the categories of an SELinux context, such as c1,c2, empty if it has none.
func categories(context string) string {
	_, found, _ := strings.Cut(context, ":s0:")
	return found
}

// labelOf returns the SELinux label of a file, empty if it has none.
func labelOf(t *testing.T, path string) string {
	t.Helper()
	label := make([]byte, 256)
	n, err := unix.Getxattr(path, attrLabel, label)
	if err != nil && !errors.Is(err, unix.ENODATA) {
		t.Fatal(err)
	}
	return strings.TrimRight(string(label[:max(n, 0)]), "\x00")
}

// ownerName returns user and group, by name if they have one.
func ownerName(uid, gid uint32) string {
	owner, group := strconv.Itoa(int(uid)), strconv.Itoa(int(gid))
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return owner + ":" + group
}

func TestEachImageHasItsOwnersAndLabelsInEachPhaseOfAMove(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	for _, format := range []api.Format{api.FormatRaw, api.FormatQcow2} {
		t.Run(string(format), func(t *testing.T) {
			g := h.defineGuest(t, h.diskIn(t, a, format))
			src := g.disks[0].Path
			if err := errors.Join(os.Chown(src, 1234, 77), os.Chmod(src, 0o640)); err != nil {
				t.Fatal(err)
			}
			want := rightsOn(t, src)
			g.adopt(t)
			written, frozen, released := phaseImage{"source", src, "write"}, phaseImage{"source", src, "read"}, phaseImage{"released source", src, ""}

			p, v := g.startInPhases(t, string(format)+", cancelled", want)
			v.cancel(t)
			p.look(t, "cancelled", written)
			p.powerOff(t, want, written)

			p, v = g.startInPhases(t, string(format)+", completed", want)
			v.copy(t)
			p.look(t, "copied", phaseImage{"overlay", v.overlay(), "write"}, frozen, phaseImage{"destination", v.Dst.Path, ""})
			wantRights(t, "dst, before the guest has it", v.Dst.Path, want)
			v.finish(t)
			dst := phaseImage{"destination", v.Dst.Path, "write"}
			p.look(t, "completed", dst, released)
			wantRights(t, "src, released while the guest runs", src, want)
			p.powerOff(t, want, dst, released)
			g.assertSettled(t)
		})
	}
}

// startInPhases boots the guest and starts a move of its disk. The source must have its rights
// while the guest is off.
func (g *guest) startInPhases(t *testing.T, name, want string) (phases, *move) {
	t.Helper()
	p, src := phases{g, name}, g.volume(t, "vda").Location.Path
	p.look(t, "guest off", phaseImage{"source", src, ""})
	wantRights(t, "src of a guest that is off", src, want)
	g.boot(t)
	p.look(t, "guest runs", phaseImage{"source", src, "write"})
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	p.look(t, "started", phaseImage{"overlay", v.overlay(), "write"}, phaseImage{"source", src, "read"})
	return p, v
}

// powerOff powers the guest off at the end of the move. Then the images must have these rights.
func (p phases) powerOff(t *testing.T, want string, images ...phaseImage) {
	t.Helper()
	p.g.powerOff(t)
	for i := range images {
		images[i].open = ""
		wantRights(t, images[i].name+" of a guest that is off", images[i].path, want)
	}
	p.look(t, "ended, guest off", images...)
}
