// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/conformance"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
)

const (
	iqn     = "iqn.2026-11.test.volferry"
	wwidOne = "6001405badcafe000000000000000001"
	wwidTwo = "6001405badcafe000000000000000002"
	one     = "dm-uuid-mpath-3" + wwidOne
	two     = "dm-uuid-mpath-3" + wwidTwo
	single  = "scsi-3" + wwidOne
	size    = 64 << 20
)

// fakeHost is the kernel, udev, open-iscsi and multipathd, with a target of two logical units.
type fakeHost struct {
	t    *testing.T
	root string
	// has are the WWIDs of the target's units.
	has []string
	// away are the unreachable portals, pending the portals of sessions that iscsid is making.
	away, pending []string
	// takesAll makes multipathd take all disks, takesGiven only those that it is given.
	takesAll, takesGiven bool
	given                map[string]bool
	// slowUdev delays udev: it has not yet processed a disk that the kernel has.
	slowUdev bool
	// open are the open devices.
	open map[string]bool
	// udevLooks is the number of looks until udev has closed an open device.
	udevLooks int
	records   []string
	// unreadable makes the records unreadable.
	unreadable bool
	ran        []string
	// copyExits are the exit statuses of the next copies.
	copyExits []int
	flushed   []string
	// missing is a program that is not installed.
	missing string
}

func newHost(t *testing.T) *fakeHost {
	return &fakeHost{
		t: t, root: t.TempDir(), has: []string{wwidOne, wwidTwo}, takesAll: true, takesGiven: true,
		given: map[string]bool{}, open: map[string]bool{},
	}
}

func (h *fakeHost) at(elements ...string) string {
	return filepath.Join(append([]string{h.root}, elements...)...)
}

func (h *fakeHost) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *fakeHost) put(path, text string) {
	h.t.Helper()
	h.must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text+"\n"), 0o600)))
}

func (h *fakeHost) link(to, path string) {
	h.t.Helper()
	_ = os.Remove(path)
	h.must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(to, path)))
}

func (h *fakeHost) drop(paths ...string) {
	h.t.Helper()
	for _, path := range paths {
		h.must(os.RemoveAll(path))
	}
}

func (h *fakeHost) session(sid string) string { return h.at("sys/class/iscsi_session/session" + sid) }

// block returns a path in a device's sysfs directory.
func (h *fakeHost) block(name string, elements ...string) string {
	return h.at(append([]string{"sys/class/block", name}, elements...)...)
}

// diskOf returns the disk of a unit in a session: sda and sdb in the first one.
func diskOf(sid string, number int) string {
	return "sd" + string(rune('a'+int(sid[0]-'1')*2+number))
}

func mapOf(number int) string { return fmt.Sprintf("dm-%d", number) }

// show plays the kernel, udev and multipathd when a session is scanned.
func (h *fakeHost) show(sid string) {
	for n, wwid := range h.has {
		d := diskOf(sid, n)
		if _, err := os.Stat(h.block(d)); err == nil {
			continue
		}
		unit := filepath.Join(h.session(sid), "device/target"+sid+":0:0", fmt.Sprintf("%s:0:0:%d", sid, n))
		h.put(filepath.Join(unit, "wwid"), "naa."+wwid)
		h.put(filepath.Join(unit, "block", d, "x"), "")
		h.put(h.block(d, "device/wwid"), "naa."+wwid)
		h.put(h.block(d, "device/state"), "running")
		h.put(h.block(d, "dev"), "8:"+d)
		if !h.slowUdev {
			h.put(h.at("udev/data", "b8:"+d), "")
		}
		h.put(h.block(d, "size"), fmt.Sprint(size/target.SectorBytes))
		h.must(os.MkdirAll(h.block(d, "holders"), 0o700))
		h.put(h.at("dev", d), "")
		h.link(h.at("dev", d), h.at("dev/disk/by-id/scsi-3"+wwid))
		if h.takesAll {
			h.multipathd(d)
		}
	}
}

// multipathd makes the map of a disk, or adds the disk to it.
func (h *fakeHost) multipathd(disk string) {
	n := int(disk[2]-'a') % 2
	m, wwid := mapOf(n), h.has[n]
	h.put(h.block(m, "dm/uuid"), "mpath-3"+wwid)
	h.put(h.block(m, "dm/name"), "mpath"+string(rune('a'+n)))
	h.put(h.block(m, "size"), fmt.Sprint(size/target.SectorBytes))
	h.must(os.MkdirAll(h.block(m, "holders"), 0o700))
	h.put(h.block(disk, "holders", m), "")
	h.put(h.block(m, "slaves", disk), "")
	h.put(h.at("dev", m), "")
	h.link(h.at("dev", m), h.at("dev/disk/by-id/dm-uuid-mpath-3"+wwid))
}

func (h *fakeHost) removeDisk(disk string) {
	n := int(disk[2]-'a') % 2
	found, err := filepath.Glob(h.at("sys/class/iscsi_session/*/device/target*/*/block", disk))
	h.must(err)
	for _, path := range found {
		h.drop(filepath.Dir(filepath.Dir(path)))
	}
	h.drop(h.block(disk), h.at("dev", disk), h.at("dev/disk/by-id/scsi-3"+h.has[n]))
}

func exitStatus(t *testing.T, status int) error {
	return exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprintf("exit %d", status)).Run()
}

func (h *fakeHost) run(_ context.Context, args ...string) ([]byte, error) {
	h.ran = append(h.ran, strings.Join(args, " "))
	option := func(name string) string { return args[slices.Index(args, name)+1] }
	switch {
	case args[0] == "multipathd" && args[1] == "del":
		for n := range h.has {
			h.drop(h.block(args[3], "holders", mapOf(n)), h.block(mapOf(n), "slaves", args[3]))
		}
	case args[0] == "multipathd":
		if !h.takesAll && !h.takesGiven {
			return nil, errors.New("multipathd: exit status 1: Connection refused")
		}
		if h.given[args[3]] {
			h.multipathd(args[3])
		}
	case args[0] == "multipath" && args[1] == "-a":
		h.given[filepath.Base(args[2])] = true
	case args[0] == "multipath":
		n := int(args[2][5] - 'a')
		for _, sid := range []string{"1", "2"} {
			h.drop(h.block(diskOf(sid, n), "holders", mapOf(n)))
		}
		h.drop(h.block(mapOf(n)), h.at("dev", mapOf(n)), h.at("dev/disk/by-id/dm-uuid-mpath-3"+h.has[n]))
	case slices.Contains(args, "session"):
		sid := option("--sid")
		if slices.Contains(args, "--rescan") {
			h.show(sid)
			return nil, nil
		}
		for n := range h.has {
			h.removeDisk(diskOf(sid, n))
		}
		h.drop(h.session(sid))
	default:
		return nil, h.node(args, option("--portal"))
	}
	return nil, nil
}

// node is iscsiadm --mode node.
func (h *fakeHost) node(args []string, portal string) error {
	switch {
	case slices.Contains(args, "new"):
		h.records = append(h.records, portal)
	case slices.Contains(args, "update"):
	case !slices.Contains(args, "--login") && h.unreadable:
		return fmt.Errorf("iscsiadm: %w", exitStatus(h.t, 6))
	case !slices.Contains(args, "--login"):
		if !slices.Contains(h.records, portal) {
			return exitStatus(h.t, 21)
		}
	case slices.Contains(h.away, portal):
		return errors.New("iscsiadm: exit status 8: connection timed out")
	case slices.Contains(h.pending, portal):
		return fmt.Errorf("iscsiadm: %w", exitStatus(h.t, sessionExists))
	default:
		host, port, _ := strings.Cut(portal, ":")
		sid := host[len(host)-1:]
		h.put(filepath.Join(h.session(sid), "targetname"), iqn)
		connection := filepath.Join(h.session(sid), "device/connection"+sid+":0/iscsi_connection/connection"+sid+":0")
		h.put(filepath.Join(connection, "persistent_address"), host)
		h.put(filepath.Join(connection, "persistent_port"), port)
		h.show(sid)
	}
	return nil
}

func (h *fakeHost) write(path, _ string) error {
	if filepath.Base(path) == "delete" {
		h.removeDisk(filepath.Base(filepath.Dir(filepath.Dir(path))))
	}
	return nil
}

func (h *fakeHost) opener(devices []string) (int, error) {
	for _, d := range devices {
		if !h.open[d] {
			continue
		}
		if h.udevLooks--; h.udevLooks == 0 {
			delete(h.open, d)
		}
		return 4711, nil
	}
	return 0, nil
}

const twoPortals = "127.0.0.1:3260,127.0.0.2:3260"

func (h *fakeHost) ask(in connector.Request) (connector.Answer, error) {
	if in.Options == nil {
		in.Options = map[string]string{"iqn": iqn, "portals": twoPortals}
	}
	c := iscsi{
		Devices: target.Devices{Sys: h.at("sys"), Dev: h.at("dev"), Udev: h.at("udev"), Opener: h.opener, Within: 200 * time.Millisecond},
		run:     h.run, runHolding: h.runHolding, installed: h.installed, canCopy: func() bool { return true }, write: h.write, state: h.at("run"),
		flush: func(path string) error { h.flushed = append(h.flushed, filepath.Base(path)); return nil },
	}
	return c.handle(h.t.Context(), in)
}

func (h *fakeHost) installed(program, debian string) error {
	if program == h.missing {
		return connector.Errorf(connector.CodeUnavailable, "%s: %s", program, debian)
	}
	return nil
}

func (h *fakeHost) connect(volume string) (connector.Answer, error) {
	return h.ask(connector.Request{Verb: connector.VerbConnect, OpID: "op", Volume: volume})
}

func (h *fakeHost) connects(volume string) {
	h.t.Helper()
	_, err := h.connect(volume)
	h.must(err)
}

func (h *fakeHost) disconnect(volume string) error {
	_, err := h.ask(connector.Request{Verb: connector.VerbDisconnect, OpID: "op", Volume: volume, Identity: strings.TrimPrefix(volume, mapPrefix)})
	return err
}

func (h *fakeHost) sessions() int {
	all, err := filepath.Glob(h.session("*"))
	h.must(err)
	return len(all)
}

func (h *fakeHost) has1(volume string) bool {
	_, err := os.Stat(h.at("dev/disk/by-id", volume))
	return err == nil
}

// openDevice is an open device of the fake.
type openDevice struct {
	*os.File
	close func()
}

func (d openDevice) Close() error { d.close(); return d.File.Close() }

// TestItKeepsToTheProtocol, by the vendors' test kit: with two portals and multipath, and with one
// portal.
func TestItKeepsToTheProtocol(t *testing.T) {
	for _, c := range []struct {
		name, portals string
		volumes       []string
		multipath     bool
	}{
		{"two portals", twoPortals, []string{one, two}, true},
		{"one portal and no multipathd", "127.0.0.1:3260", []string{single, "scsi-3" + wwidTwo}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.takesAll, h.takesGiven = c.multipath, c.multipath
			real := func(path string) string { return strings.Replace(path, "/dev/", h.at("dev")+"/", 1) }
			failed := conformance.Run(t.Context(), conformance.Subject{
				Volumes: c.volumes,
				Run: func(ctx context.Context, in connector.Request) (connector.Answer, error) {
					var out strings.Builder
					text := fmt.Sprintf(`{"protocol": %d, "verb": %q, "op_id": %q, "pool": "p", "options": {"iqn": %q, "portals": %q}, "volume": %q, "identity": %q, "size_bytes": %d}`,
						in.Protocol, in.Verb, in.OpID, iqn, c.portals, in.Volume, in.Identity, in.SizeBytes)
					err := connector.Serve(ctx, strings.NewReader(text), &out, func(_ context.Context, in connector.Request) (connector.Answer, error) { return h.ask(in) })
					if err != nil {
						return connector.Answer{}, err
					}
					return connector.ReadAnswer(in, []byte(strings.ReplaceAll(out.String(), h.at("dev"), "/dev")))
				},
				Look: func(path string) (pools.Device, error) {
					to, err := filepath.EvalSymlinks(real(path))
					if errors.Is(err, os.ErrNotExist) {
						return pools.Device{}, pools.ErrNoDevice
					}
					name := filepath.Base(to)
					text, readErr := os.ReadFile(h.block(name, "dm/uuid"))
					if readErr != nil {
						text, readErr = os.ReadFile(h.block(name, "device/wwid"))
					}
					return pools.Device{SizeBytes: size, Identity: strings.TrimSpace(string(text))}, errors.Join(err, readErr)
				},
				Open: func(path string) (conformance.Device, error) {
					to, err := filepath.EvalSymlinks(real(path))
					if err != nil {
						return nil, err
					}
					f, err := os.OpenFile(to, os.O_RDWR, 0)
					h.open[to] = true
					return openDevice{f, func() { delete(h.open, to) }}, err
				},
				Interrupted: []time.Duration{time.Hour},
				Report: func(f conformance.Finding) {
					if f.Err != nil {
						t.Errorf("%s: %v", f.Check, f.Err)
					}
				},
			})
			if failed > 0 || h.sessions() > 0 {
				t.Errorf("%d checks have failed; sessions: %d", failed, h.sessions())
			}
		})
	}
}

// TestAVolumeIsAMapOfAllPathsAndItsDevicesGoBeforeTheSession, which stays for another volume.
func TestAVolumeIsAMapOfAllPathsAndItsDevicesGoBeforeTheSession(t *testing.T) {
	h := newHost(t)
	out, err := h.connect(one)
	h.must(err)
	want := connector.Volume{Name: one, Path: h.at("dev/disk/by-id", one), SizeBytes: size, Identity: "mpath-3" + wwidOne}
	if *out.Volume != want || h.sessions() != 2 {
		t.Errorf("it is %+v by %d sessions, want %+v by 2", *out.Volume, h.sessions(), want)
	}
	_, err = h.connect(two)
	h.must(err)
	h.ran, h.flushed = nil, nil
	h.must(h.disconnect(one))
	if h.has1(one) || !h.has1(two) || h.sessions() != 2 {
		t.Errorf("after its disconnect it is there: %v; the other one: %v; sessions: %d", h.has1(one), h.has1(two), h.sessions())
	}
	if !slices.Equal(h.ran, []string{"multipath -f mpatha"}) || !slices.Equal(h.flushed, []string{"dm-0", "sda", "sdc"}) {
		t.Errorf("it ran %q and flushed %q", h.ran, h.flushed)
	}
	_, err = h.connect(one)
	h.must(err)
	if h.must(h.disconnect(two)); !h.has1(one) {
		t.Error("a volume that came back has gone with the other one")
	}
	if h.must(h.disconnect(one)); h.sessions() != 0 {
		t.Errorf("sessions after the last volume: %d", h.sessions())
	}
}

// TestADisconnectThatWasCutOffIsEnded, wherever it was interrupted.
func TestADisconnectThatWasCutOffIsEnded(t *testing.T) {
	for name, cut := range map[string]func(h *fakeHost){
		"the map is gone":    func(h *fakeHost) { _, _ = h.run(h.t.Context(), "multipath", "-f", "mpatha") },
		"a path is gone":     func(h *fakeHost) { _, _ = h.run(h.t.Context(), "multipath", "-f", "mpatha"); h.removeDisk("sda") },
		"a session has gone": func(h *fakeHost) { _, _ = h.run(h.t.Context(), "iscsiadm", "session", "--sid", "1") },
		"both have": func(h *fakeHost) {
			for _, sid := range []string{"1", "2"} {
				_, _ = h.run(h.t.Context(), "iscsiadm", "session", "--sid", sid)
			}
			_, _ = h.run(h.t.Context(), "multipath", "-f", "mpatha")
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			_, err := h.connect(one)
			h.must(err)
			cut(h)
			if err := h.disconnect(one); err != nil || h.sessions() > 0 || h.has1(one) {
				t.Errorf("%v; sessions %d, there %v", err, h.sessions(), h.has1(one))
			}
			_, err = h.connect(one) // no device counts as another program's
			h.must(err)
			if h.must(h.disconnect(one)); h.sessions() > 0 {
				t.Error("the next session has not ended")
			}
		})
	}
}

func TestASessionThatWasThereKeepsItsDevices(t *testing.T) {
	h := newHost(t)
	h.must(h.node([]string{"--login"}, "127.0.0.1:3260"))
	_, err := h.connect(one)
	h.must(err)
	if err := h.disconnect(one); err != nil || h.sessions() != 2 || !h.has1(one) {
		t.Errorf("the session of somebody else: %v, sessions %d, device %v", err, h.sessions(), h.has1(one))
	}
}

// TestNothingIsTakenAwayUnderADeviceThatIsOpen: the volume's device, or with the last volume any
// device.
func TestNothingIsTakenAwayUnderADeviceThatIsOpen(t *testing.T) {
	for name, mapped := range map[string]bool{"the map of another unit": true, "a path": false} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			_, err := h.connect(one)
			h.must(err)
			used := h.at("dev/sda")
			if mapped {
				used = h.at("dev/dm-1")
			}
			h.open[used] = true
			if err := h.disconnect(one); connector.CodeOf(err) != connector.CodeInUse || h.sessions() != 2 || !h.has1(one) {
				t.Errorf("it is %v, sessions %d, device %v", err, h.sessions(), h.has1(one))
			}
			// It waits for udev, which has the device open for a moment.
			h.put(h.at("udev/queue"), "")
			h.udevLooks = 3
			if err := h.disconnect(one); err != nil || h.sessions() > 0 {
				t.Errorf("asked again: %v, sessions %d", err, h.sessions())
			}
		})
	}
}

// TestWhatIsOnAMapKeepsIt, except its unused partitions.
func TestWhatIsOnAMapKeepsIt(t *testing.T) {
	h := newHost(t)
	_, err := h.connect(one)
	h.must(err)
	h.put(h.block("dm-7", "dm/uuid"), "part1-mpath-3"+wwidOne)
	h.put(h.block("dm-0", "holders/dm-7"), "")
	h.put(h.block("dm-8", "dm/uuid"), "LVM-x")
	h.put(h.block("dm-7", "holders/dm-8"), "")
	if err := h.disconnect(one); connector.CodeOf(err) != connector.CodeInUse || !h.has1(one) {
		t.Errorf("under a logical volume: %v, there %v", err, h.has1(one))
	}
	h.drop(h.block("dm-7", "holders/dm-8"))
	if err := h.disconnect(one); err != nil || h.has1(one) {
		t.Errorf("under a partition: %v, there %v", err, h.has1(one))
	}
}

// TestADiskThatMultipathdWaitsToBeGivenIsGiven: by default multipathd makes no map of a single
// path.
func TestADiskThatMultipathdWaitsToBeGivenIsGiven(t *testing.T) {
	h := newHost(t)
	h.takesAll = false
	if out, err := h.connect(one); err != nil || out.Volume.Identity != "mpath-3"+wwidOne {
		t.Errorf("it is %+v, %v", out.Volume, err)
	}
	h.must(h.disconnect(one))
	h.slowUdev = true
	h.drop(h.at("udev"))
	h.ran = nil
	if _, err := h.connect(one); connector.CodeOf(err) != connector.CodeFailed || slices.Contains(h.ran, "multipathd add path sda") {
		t.Errorf("while udev does not know it: %v, it ran %q", err, h.ran)
	}
	h.slowUdev, h.takesGiven = false, false
	if _, err := h.connect(one); connector.CodeOf(err) != connector.CodeFailed || h.sessions() > 0 {
		t.Errorf("without multipathd: %v, sessions %d", err, h.sessions())
	}
}

func TestWhatCannotBeConnectedLeavesNoSession(t *testing.T) {
	h := newHost(t)
	none := "dm-uuid-mpath-36001405badcafe000000000000000009"
	if _, err := h.connect(none); connector.CodeOf(err) != connector.CodeNotFound || h.sessions() > 0 {
		t.Errorf("it is %v, sessions %d", err, h.sessions())
	}
	_, err := h.connect(one)
	h.must(err)
	if _, err := h.connect(none); connector.CodeOf(err) != connector.CodeNotFound || h.sessions() != 2 || !h.has1(one) {
		t.Errorf("beside another volume it is %v, sessions %d, the other %v", err, h.sessions(), h.has1(one))
	}
}

func TestOnePathIsEnoughAndNoneIsUnavailable(t *testing.T) {
	h := newHost(t)
	h.away = []string{"127.0.0.1:3260", "127.0.0.2:3260"}
	if _, err := h.connect(one); connector.CodeOf(err) != connector.CodeUnavailable {
		t.Errorf("without a path: %v", err)
	}
	h.away, h.pending = nil, h.away
	if _, err := h.connect(one); connector.CodeOf(err) != connector.CodeUnavailable {
		t.Errorf("by sessions that are not made in time: %v", err)
	}
	h.away, h.pending = h.pending[:1], nil
	if _, err := h.connect(one); err != nil || h.sessions() != 1 {
		t.Errorf("with one path: %v, sessions %d", err, h.sessions())
	}
	h.away, h.ran = nil, nil
	node := "iscsiadm --mode node --targetname " + iqn + " --portal 127.0.0.1:3260"
	if _, err := h.connect(one); err != nil || !slices.Equal(h.ran, []string{node, node + " --login"}) {
		t.Errorf("the other path is made by %q, %v", h.ran, err)
	}
}

// TestAPoolWithoutAProgramThatItNeedsIsUnavailable; one portal needs no multipath.
func TestAPoolWithoutAProgramThatItNeedsIsUnavailable(t *testing.T) {
	for _, c := range []struct{ missing, portals, says string }{
		{"iscsiadm", "127.0.0.1:3260", "iscsiadm: open-iscsi"},
		{"iscsiadm", twoPortals, "iscsiadm: open-iscsi"},
		{"multipath", twoPortals, "multipath: multipath-tools"},
		{"multipathd", twoPortals, "multipathd: multipath-tools"},
		{"multipathd", "127.0.0.1:3260", ""},
		{"", twoPortals, ""},
	} {
		h := newHost(t)
		h.missing = c.missing
		_, err := h.ask(connector.Request{Verb: connector.VerbInspect, Options: map[string]string{"iqn": iqn, "portals": c.portals}})
		if c.says == "" {
			h.must(err)
		} else if connector.CodeOf(err) != connector.CodeUnavailable || err.Error() != c.says {
			t.Errorf("without %s, by %s: %v", c.missing, c.portals, err)
		}
	}
}

// TestARecordThatIsThereIsLeftAsItIs, because the operator may have put a secret into it.
func TestARecordThatIsThereIsLeftAsItIs(t *testing.T) {
	h := newHost(t)
	h.records = []string{"127.0.0.1:3260"}
	_, err := h.connect(one)
	h.must(err)
	for _, ran := range h.ran {
		if strings.Contains(ran, "127.0.0.1") && strings.Contains(ran, "--op") {
			t.Errorf("it ran %s", ran)
		}
	}
	if !slices.Contains(h.ran, "iscsiadm --mode node --targetname "+iqn+" --portal 127.0.0.2:3260 --op new") {
		t.Errorf("the other portal gets no record: %q", h.ran)
	}
}

// TestARecordThatCannotBeReadIsNotReplaced, because it may have the operator's secret.
func TestARecordThatCannotBeReadIsNotReplaced(t *testing.T) {
	h := newHost(t)
	h.unreadable = true
	if _, err := h.connect(one); connector.CodeOf(err) != connector.CodeUnavailable {
		t.Errorf("connected: %v", err)
	}
	for _, ran := range h.ran {
		if strings.Contains(ran, "--op") {
			t.Errorf("it ran %s", ran)
		}
	}
}

// TestAMapWithAPathToAnotherUnitIsNotHandedOut: the target has given a unit's number to another
// unit, and multipathd has not noticed.
func TestAMapWithAPathToAnotherUnitIsNotHandedOut(t *testing.T) {
	h := newHost(t)
	_, err := h.connect(one)
	h.must(err)
	h.put(h.block("sda", "device/wwid"), "naa."+wwidTwo)
	h.put(filepath.Join(h.session("1"), "device/target1:0:0/1:0:0:0/wwid"), "naa."+wwidTwo)
	for _, verb := range []string{connector.VerbInspect, connector.VerbConnect} {
		if _, err := h.ask(connector.Request{Verb: verb, OpID: "op", Volume: one}); connector.CodeOf(err) != connector.CodeChanged || !strings.Contains(err.Error(), "sda") {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// secondTarget gives the map of a unit a path to another target of the same storage.
func (h *fakeHost) secondTarget(number int) (disk string) {
	disk = "sdz"
	h.put(h.block(disk, "dev"), "65:144")
	h.put(h.block(disk, "device/wwid"), "naa."+h.has[number])
	h.put(h.block(disk, "holders", mapOf(number)), "")
	h.put(h.block(mapOf(number), "slaves", disk), "")
	return disk
}

func TestAMapWithAPathToAnotherTargetLosesOurPathsAndIsKept(t *testing.T) {
	for _, last := range []bool{false, true} {
		h := newHost(t)
		h.connects(one)
		if !last {
			h.connects(two)
		}
		other := h.secondTarget(0)
		if err := h.disconnect(one); err != nil {
			t.Fatalf("last=%t: %v", last, err)
		}
		if left, err := os.ReadDir(h.block(mapOf(0), "slaves")); err != nil || len(left) != 1 || left[0].Name() != other {
			t.Errorf("last=%t: the map is on %v (%v), want %s alone", last, left, err, other)
		}
		if want := map[bool]int{false: 2, true: 0}[last]; h.sessions() != want {
			t.Errorf("last=%t: there are %d sessions, want %d", last, h.sessions(), want)
		}
	}
}

// The kernel has no WWID of a unit without page 0x83.
func TestAUnitThatSaysNothingOfItselfIsInNobodysWayAndIsNotTakenFromWhoHasIt(t *testing.T) {
	h := newHost(t)
	h.connects(two)
	unit := filepath.Join(h.session("1"), "device/target1:0:0/1:0:0:7")
	h.put(filepath.Join(unit, "block/sdy/x"), "")
	h.must(unix.Mknod(filepath.Join(unit, "wwid"), unix.S_IFSOCK|0o600, 0)) // opening a socket fails with ENXIO
	h.put(h.block("sdy", "device/state"), "running")
	h.connects(one)
	h.must(h.disconnect(one))
	h.open[h.at("dev/sdy")] = true
	if err := h.disconnect(two); connector.CodeOf(err) != connector.CodeInUse || h.sessions() != 2 {
		t.Errorf("the sessions of a unit that is open: %v, and %d are left", err, h.sessions())
	}
}

// TestAUnitBySeveralPathsIsNoDisk: only a map has all paths.
func TestAUnitBySeveralPathsIsNoDisk(t *testing.T) {
	h := newHost(t)
	if _, err := h.connect(single); connector.CodeOf(err) != connector.CodeInvalid || !strings.Contains(err.Error(), one) || h.sessions() > 0 {
		t.Errorf("by two portals: %v", err)
	}
	_, err := h.ask(connector.Request{Verb: connector.VerbConnect, OpID: "op", Volume: single, Options: map[string]string{"iqn": iqn, "portals": "127.0.0.1:3260"}})
	if connector.CodeOf(err) != connector.CodeInvalid || !strings.Contains(err.Error(), one) || h.sessions() > 0 {
		t.Errorf("multipathd has it: %v, sessions %d", err, h.sessions())
	}
}

func TestANameOfAnotherDeviceIsNotTaken(t *testing.T) {
	h := newHost(t)
	_, err := h.connect(two)
	h.must(err)
	h.put(h.at("dev/sdx"), "")
	h.link(h.at("dev/sdx"), h.at("dev/disk/by-id", one))
	if _, err := h.connect(one); connector.CodeOf(err) != connector.CodeFailed {
		t.Errorf("a name that is another device's: %v", err)
	}
}

func TestOptionsAndNamesThatMakeNoSenseAreRefused(t *testing.T) {
	for _, options := range []map[string]string{
		{},
		{"iqn": iqn},
		{"iqn": "--help", "portals": twoPortals},
		{"iqn": iqn, "portals": "--help:3260"},
		{"iqn": iqn, "portals": "127.0.0.1"},
		{"iqn": iqn, "portals": twoPortals, "password": "x"},
	} {
		h := newHost(t)
		if _, err := h.ask(connector.Request{Verb: connector.VerbInspect, Options: options}); connector.CodeOf(err) != connector.CodeInvalid {
			t.Errorf("%v: %v", options, err)
		}
	}
	h := newHost(t)
	if _, err := h.ask(connector.Request{Verb: connector.VerbCreate, OpID: "op", Volume: one, SizeBytes: size}); connector.CodeOf(err) != connector.CodeUnsupported {
		t.Errorf("a create is %v", err)
	}
	for _, name := range []string{"nvme-uuid.1", "scsi-1LIO-ORG", "dm-uuid-mpath-mpatha", "dm-uuid-LVM-x", "scsi-36001405"} {
		if _, err := h.connect(name); connector.CodeOf(err) != connector.CodeNotFound || len(h.ran) > 0 {
			t.Errorf("%s: %v, it ran %q", name, err, h.ran)
		}
	}
}
