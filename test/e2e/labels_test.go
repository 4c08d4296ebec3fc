// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// ownLabels is how a definition chooses the confinement of its guest, or the owner of an image.
type ownLabels struct {
	name string
	// require skips a machine without the security module of the labels.
	require func(testing.TB)
	// domain and source are parts of the <domain> and of the <source> of its disk.
	domain, source string
	// prepare does for the guest what libvirt does not.
	prepare func(*testing.T, *guest)
}

// loadProfile loads an AppArmor profile that permits everything, under the name that libvirt has
// for the profile of the guest.
func loadProfile(t *testing.T, g *guest) {
	t.Helper()
	profile := "profile " + g.profile() + " flags=(attach_disconnected) {\n file,\n network,\n capability,\n signal,\n unix,\n ptrace,\n}\n"
	load := func(how string) {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "apparmor_parser", how)
		cmd.Stdin = strings.NewReader(profile)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("apparmor_parser %s: %v: %s", how, err, out)
		}
	}
	load("--replace")
	t.Cleanup(func() { load("--remove") })
}

// profile is the name of the guest's AppArmor profile. libvirt takes no other.
func (g *guest) profile() string { return "libvirt-" + g.UUID }

// staticContext is a context of SELinux for guests.
const staticContext = "system_u:system_r:svirt_t:s0:c10,c20"

// ownLabelsOf are the ways to choose, if QEMU runs as this user.
func ownLabelsOf(uid string) []ownLabels {
	own := func(t *testing.T, g *guest) {
		t.Helper()
		var user int
		if _, err := fmt.Sscan(uid, &user); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(g.disks[0].Path, user, -1); err != nil {
			t.Fatal(err)
		}
	}
	label := func(t *testing.T, g *guest) {
		t.Helper()
		own(t, g)
		if err := unix.Setxattr(g.disks[0].Path, attrLabel, []byte("system_u:object_r:svirt_image_t:s0:c10,c20"), 0); err != nil {
			t.Fatal(err)
		}
	}
	return []ownLabels{
		{name: "no AppArmor", require: lab.RequireAppArmor, domain: "<seclabel type='none' model='apparmor'/>"},
		{name: "static profile", require: lab.RequireAppArmor, domain: "<seclabel type='static' model='apparmor'><label>PROFILE</label></seclabel>", prepare: loadProfile},
		{name: "no SELinux", require: lab.RequireSELinux, domain: "<seclabel type='none' model='selinux'/>"},
		{name: "static context", require: lab.RequireSELinux, domain: "<seclabel type='static' model='selinux' relabel='yes'><label>" + staticContext + "</label></seclabel>"},
		{name: "static context, labels kept", require: lab.RequireSELinux, domain: "<seclabel type='static' model='selinux' relabel='no'><label>" + staticContext + "</label></seclabel>", prepare: label},
		{name: "owner of the disk kept, refused", require: lab.RequireConfined, source: "<seclabel model='dac' relabel='no'/>", prepare: own},
		{name: "owners kept", require: lab.RequireConfined, domain: "<seclabel type='static' model='dac' relabel='no'><label>+" + uid + ":+" + uid + "</label></seclabel>", prepare: own},
	}
}

// Definitions that choose the confinement of their guest, or keep libvirt from changing owners and
// labels of images, keep their choice, and their guests move while another guest is confined as
// usual. A disk with a choice of its own is refused.
func TestGuestsWithLabelsOfTheirOwnMove(t *testing.T) {
	leftToTestE2E(t)
	lab.RequireConfined(t)
	h, a, _ := sharedPools(t)
	usual := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	_, uid := usual.confinement(t)
	for _, labels := range ownLabelsOf(uid) {
		t.Run(labels.name, func(t *testing.T) {
			labels.require(t)
			g := h.defineGuest(t, h.diskIn(t, a, api.FormatRaw))
			source := "'" + g.disks[0].Path + "'"
			g.define(t, strings.NewReplacer("</domain>", strings.ReplaceAll(labels.domain, "PROFILE", g.profile())+"</domain>", source+"/>", source+">"+labels.source+"</source>").
				Replace(h.virsh(t, "dumpxml", g.Name, "--inactive")))
			if labels.prepare != nil {
				labels.prepare(t, g)
			}
			g.slots = g.persistentSlots(t)
			want := g.labels(t)
			g.boot(t)
			g.adopt(t)
			if labels.source != "" {
				mustContain(t, g.refusesToMove(t, "vda", api.CodeUnsupportedDisk, "--to-pool", "b").Message, "<seclabel>")
				g.assertSettled(t)
				return
			}
			g.migrate(t, "vda", "--to-pool", "b")
			v := g.start(t, "vda", "--to-pool", "a")
			g.writes(t)
			v.copy(t)
			v.cancel(t)
			if now := g.labels(t); !slices.Equal(now, want) {
				t.Errorf("the definition has the labels %q, want %q", now, want)
			}
			g.assertSettledAndGoOn(t)
			g.assertSettled(t)
		})
	}
	usual.migrate(t, "vda", "--to-pool", "b")
	usual.assertSettled(t)
}

// labels returns the lines about labels in the guest's definition.
func (g *guest) labels(t *testing.T) (lines []string) {
	t.Helper()
	for line := range strings.Lines(g.host.virsh(t, "dumpxml", g.Name, "--inactive")) {
		if strings.Contains(line, "label") {
			lines = append(lines, line)
		}
	}
	if lines == nil {
		t.Errorf("the definition of guest %s has no labels", g.Name)
	}
	return lines
}
