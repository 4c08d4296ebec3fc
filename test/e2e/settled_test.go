// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/beevik/etree"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// slot is a disk of a domain: all of its XML but where the bytes are, and that.
type slot struct {
	Target string
	Source string
	Format string
	Rest   string // serial, bus, address and everything else that the guest may see
}

// slotsOf reads the disks of a domain, of the persistent definition or, without
// --inactive, as it runs.
func (h *host) slotsOf(t *testing.T, domain string, flags ...string) []slot {
	t.Helper()
	doc := etree.NewDocument()
	if err := doc.ReadFromString(h.virsh(t, append([]string{"dumpxml", domain}, flags...)...)); err != nil {
		t.Fatalf("parse XML of domain %s: %v", domain, err)
	}
	var slots []slot
	for _, d := range doc.FindElements("/domain/devices/disk") {
		s := slot{Target: d.FindElement("target").SelectAttrValue("dev", "")}
		if source := d.SelectElement("source"); source != nil {
			s.Source = source.SelectAttrValue("file", source.SelectAttrValue("dev", ""))
			if host := source.SelectElement("host"); source.SelectAttrValue("protocol", "") == "rbd" {
				s.Source = cephURI(source.SelectAttrValue("name", ""), source.SelectElement("host"))
			} else if host != nil {
				export := medium.NBDExport{Name: source.SelectAttrValue("name", ""), Socket: host.SelectAttrValue("socket", "")}
				if export.Socket == "" {
					export.Server = host.SelectAttrValue("name", "") + ":" + host.SelectAttrValue("port", "")
				}
				s.Source = export.URI()
			}
			d.RemoveChild(source)
		}
		if driver := d.SelectElement("driver"); driver != nil {
			s.Format = driver.SelectAttrValue("type", "")
			driver.RemoveAttr("type")
		}
		d.RemoveAttr("type") // file, block or network
		for _, name := range []string{"backingStore", "alias", "auth"} {
			if e := d.SelectElement(name); e != nil {
				d.RemoveChild(e)
			}
		}
		rest := etree.NewDocumentWithRoot(d.Copy())
		rest.Unindent()
		var err error
		if s.Rest, err = rest.WriteToString(); err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
	}
	return slots
}

func (g *guest) persistentSlots(t *testing.T) []slot {
	t.Helper()
	return g.host.slotsOf(t, g.Name, "--inactive")
}

// assertSettled claims that nothing is in progress, that nothing was left
// behind, and that every write that the guest was told is done is in the volume
// where the registry says it is. A guest that runs must still be writing. The
// guest is stopped when it returns; it is how every test of a guest ends.
func (g *guest) assertSettled(t *testing.T) {
	t.Helper()
	g.settled = true
	g.assertAtRest(t)
	if g.state(t) != "shut off" {
		g.destroy(t)
	}
	for i := range g.disks {
		g.assertHolds(t, target(i), g.volume(t, target(i)).Location)
	}
}

// assertSettledAndGoOn is assertSettled between two moves of a guest that runs:
// it writes again when it returns. If QEMU has to let go of an image for that to
// be read, the guest is stopped and boots again from what its definition names.
func (g *guest) assertSettledAndGoOn(t *testing.T) {
	t.Helper()
	for i := range g.disks {
		if g.volume(t, target(i)).Location.Format != api.FormatRaw {
			g.assertSettled(t)
			g.boot(t)
			return
		}
	}
	g.assertAtRest(t)
	for i := range g.disks {
		g.assertHolds(t, target(i), g.volume(t, target(i)).Location)
	}
	g.write(t)
}

// assertAtRest is assertSettled without a look into the volumes. The writers of
// a guest that runs are stopped when it returns.
func (g *guest) assertAtRest(t *testing.T) {
	t.Helper()
	state := g.state(t)
	if state == "running" {
		g.writes(t)
	}
	g.assertNoLeftovers(t, state)
	for i := range g.disks {
		g.assertRegistered(t, target(i))
	}
	g.assertSameSlots(t)
	if state != "shut off" {
		g.assertHoldsOnlyItsDisks(t)
	}
	if state == "running" {
		g.quiesce(t)
	}
}

// assertNoLeftovers: no overlay, guard, job, paused guest or device, and no
// persistent definition that differs from what runs.
func (g *guest) assertNoLeftovers(t *testing.T, state string) {
	t.Helper()
	g.assertNothingLeft(t, state)
	if open := get[[]api.Migration](t, g.host, "migrations", "migration", "list"); len(open) > 0 {
		t.Errorf("migrations that are not over: %+v", open)
	}
}

// assertNothingLeft is assertNoLeftovers while a migration waits with its last word.
func (g *guest) assertNothingLeft(t *testing.T, state string) {
	t.Helper()
	left := slices.DeleteFunc(g.host.leftovers(t, g.host.Overlays(), g.host.Guards()), func(s string) bool {
		return s == "domain "+g.Name+" is paused" && state == "paused"
	})
	if len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// leftovers are those of the host and its libvirtd, and what is in the directories, but for what
// the test has made so.
func (h *host) leftovers(t *testing.T, empty ...string) []string {
	t.Helper()
	left, err := h.Libvirtd.Leftovers(t.Context(), empty...)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.DeleteFunc(left, h.isClone), func(s string) bool { // paused by the test, and it has to stay so
		name, paused := strings.CutPrefix(strings.TrimSuffix(s, " is paused"), "domain ")
		return paused && h.paused[name]
	})
}

// assertRegistered: registry, journal and libvirt agree where the volume is, and
// it is locked by nothing.
func (g *guest) assertRegistered(t *testing.T, target string) {
	t.Helper()
	v := g.volume(t, target)
	if v.MigrationID != "" || v.Status != api.VolumeInUse || len(v.Attachments) != 1 {
		t.Fatalf("volume is not as at rest: %+v", v)
	}
	if a := v.Attachments[0]; a.State != api.AttachmentAttached || a.Device != target {
		t.Errorf("attachment is not as at rest: %+v", a)
	}
	if diff := cmp.Diff(v.Location, v.Attachments[0].Location); diff != "" {
		t.Errorf("location of the attachment (-volume +attachment):\n%s", diff)
	}
	w := get[api.Which](t, g.host, "which", "volume", "which", v.ID)
	if !w.Agree || len(w.Authoritative) != 1+len(v.Location.Backing.Images()) || w.Authoritative[0].Path != v.Location.Path {
		t.Errorf("volume which: want %s: %+v", v.Location.Path, w)
	}
	slots := g.persistentSlots(t)
	i := slices.IndexFunc(slots, func(s slot) bool { return s.Target == target })
	if i < 0 || slots[i].Source != v.Location.Path || slots[i].Format != string(v.Location.Format) {
		t.Errorf("the definition has %+v, the registry %+v", slots, v.Location)
	}
}

// assertSameSlots: but for where the bytes are, the disks are what they were.
// The addresses are in there.
func (g *guest) assertSameSlots(t *testing.T) {
	t.Helper()
	rest := cmp.Transformer("rest", func(s slot) string { return s.Rest })
	if diff := cmp.Diff(g.slots, g.persistentSlots(t), rest); diff != "" {
		t.Errorf("disks of guest %s (-before +after):\n%s", g.Name, diff)
	}
}

// assertHoldsOnlyItsDisks: the guest's QEMU has no other image open than those
// that its disks are, so that a released source is free.
func (g *guest) assertHoldsOnlyItsDisks(t *testing.T) {
	t.Helper()
	var want []string
	for _, s := range g.persistentSlots(t) {
		if medium.Of(s.Source).Witnessed { // which is no file that QEMU has open
			want = append(want, deviceNode(t, s.Source))
		}
	}
	for i := range g.disks {
		for _, img := range g.volume(t, target(i)).Location.Backing.Images() {
			want = append(want, img.Path)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, g.openImages(t)); diff != "" {
		t.Errorf("images that QEMU has open (-want +got):\n%s", diff)
	}
}

// openImages lists the images that the guest's QEMU has open: block devices,
// and files where the test keeps images.
func (g *guest) openImages(t *testing.T) []string {
	t.Helper()
	var images []string
	for fd, path := range g.openFiles(t) {
		if isBlockDevice(fd) || strings.Contains(path, "/pool-") || strings.HasPrefix(path, g.host.Overlays()) {
			images = append(images, path)
		}
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// deviceNode is the path of an image without the links that udev makes for a device, as the kernel
// says what a process has open.
func deviceNode(t *testing.T, path string) string {
	t.Helper()
	if !isBlockDevice(path) {
		return path
	}
	node, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// isBlockDevice reports whether a path leads to a block device.
func isBlockDevice(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().Type() == os.ModeDevice
}

// openFiles maps the descriptors of the guest's QEMU to the files behind them.
func (g *guest) openFiles(t *testing.T) map[string]string {
	t.Helper()
	fds, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(g.pid(t)), "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for _, fd := range fds {
		if path, err := os.Readlink(fd); err == nil { // not closed since
			files[fd] = path
		}
	}
	return files
}

// openModes says for what the guest's QEMU has an image open: read, write.
func (g *guest) openModes(t *testing.T, image string) []string {
	t.Helper()
	var modes []string
	for fd, path := range g.openFiles(t) {
		if path != image {
			continue
		}
		info, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(fd)), "fdinfo", filepath.Base(fd)))
		if err != nil {
			continue // closed since
		}
		_, rest, _ := strings.Cut(string(info), "flags:")
		flags, err := strconv.ParseInt(strings.Fields(rest)[0], 8, 64)
		if err != nil {
			t.Fatal(err)
		}
		if flags&unix.O_ACCMODE == unix.O_RDONLY {
			modes = append(modes, "read")
			continue
		}
		modes = append(modes, "write")
	}
	slices.Sort(modes)
	return slices.Compact(modes)
}

// pid is that of the guest's QEMU.
func (g *guest) pid(t *testing.T) int {
	t.Helper()
	pid, err := g.process()
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// process is pid beside a test.
func (g *guest) process() (pid int, err error) {
	text, err := os.ReadFile(g.pidFile())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// pidFile is there while libvirt has a process of the guest.
func (g *guest) pidFile() string {
	return filepath.Join(g.host.Libvirtd.RunDir, "qemu", g.Name+".pid")
}

// assertHolds claims that the image holds every write that the guest was told
// is done. The guest is stopped, or has nothing in flight and a raw image.
func (g *guest) assertHolds(t *testing.T, target string, l api.Location) {
	t.Helper()
	if history := g.check(t, target, l); len(history.Errors) > 0 {
		t.Errorf("operations that failed in guest %s: %v", g.Name, history.Errors)
	}
}

// check is assertHolds that lets the guest have seen errors.
func (g *guest) check(t *testing.T, target string, l api.Location) *lab.History {
	t.Helper()
	history := g.History(target)
	if target == "vda" && g.grown > 0 {
		history.Volume = uint64((volumeBytes + g.grown) / workload.BlockSize)
	}
	volume := volumeAt(l)
	if i := int(target[2] - 'a'); l.IsLUKS() && i < len(g.disks) {
		volume.LUKS = g.disks[i].LUKS
	}
	if onStorage() && isBlockDevice(volume.Path) {
		tool(t, "blockdev", "--flushbufs", volume.Path) // so that the device is read, and not the page cache
	}
	r, err := lab.Check(t.Context(), volume, history, lab.PowerWasCutAt(g.cuts...))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Errorf("volume at %s: %v", l.Path, err)
	}
	t.Logf("%s of %s at %s: %d writes acknowledged, %d found", target, g.Name, l.Path, r.Acked, r.Found)
	return history
}

// volumeAt is what is at a location, for who reads it there.
func volumeAt(l api.Location) lab.Volume {
	return lab.Volume{Path: fileOf(l.Path), Format: string(l.Format), SliceBytes: l.SliceBytes()}
}
