// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// Leftovers looks for what an operation must not leave behind in a lab that
// runs, and returns one line for each thing found: a paused guest, a block job,
// an overlay in use, a guest whose persistent definition has other disks than
// it runs with, a QEMU without a domain, a mount or loop device below Dir that
// the lab did not make, and anything at all in the given directories, such as
// those for overlays and guards.
func (l *Libvirtd) Leftovers(ctx context.Context, empty ...string) ([]string, error) {
	found, err := l.Connection.Leftovers(ctx, empty...)
	if err != nil {
		return nil, err
	}
	for _, look := range []func() ([]string, error){
		l.strayGuests,
		func() ([]string, error) { return strayDevices(l.Dir) },
	} {
		f, err := look()
		if err != nil {
			return nil, fmt.Errorf("look for leftovers: %w", err)
		}
		found = append(found, f...)
	}
	return found, nil
}

// Leftovers looks for what an operation must not leave behind at a libvirtd: a paused
// guest, a block job, an overlay in use, a guest whose persistent definition has other
// disks than it runs with, and anything at all in the given directories, as libvirtd
// sees them.
func (c *Connection) Leftovers(ctx context.Context, empty ...string) ([]string, error) {
	names, err := c.Virsh(ctx, "list", "--name", "--all")
	if err != nil {
		return nil, fmt.Errorf("look for leftovers: %w", err)
	}
	var found []string
	for _, name := range strings.Fields(names) {
		f, err := c.domainLeftovers(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("look for leftovers: %w", err)
		}
		found = append(found, f...)
	}
	for _, dir := range empty {
		f, err := filesIn(c.here(dir))
		if err != nil {
			return nil, fmt.Errorf("look for leftovers: %w", err)
		}
		found = append(found, f...)
	}
	return found, nil
}

// diskXML is what matters here of a <disk> in a domain's XML.
type diskXML struct {
	Target struct {
		Dev string `xml:"dev,attr"`
	} `xml:"target"`
	Serial string `xml:"serial"`
	Driver struct {
		Type string `xml:"type,attr"`
	} `xml:"driver"`
	Source struct {
		File string `xml:"file,attr"`
		Dev  string `xml:"dev,attr"`
	} `xml:"source"`
	BackingStore struct {
		Type string `xml:"type,attr"`
	} `xml:"backingStore"`
	Mirror *struct {
		Job string `xml:"job,attr"`
	} `xml:"mirror"`
	Address struct {
		Attrs []xml.Attr `xml:",any,attr"`
	} `xml:"address"`
}

func (c *Connection) disks(ctx context.Context, domain string, flags ...string) ([]diskXML, error) {
	text, err := c.Virsh(ctx, append([]string{"dumpxml", domain}, flags...)...)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Disks []diskXML `xml:"devices>disk"`
	}
	if err := xml.Unmarshal([]byte(text), &parsed); err != nil {
		return nil, fmt.Errorf("parse XML of domain %s: %w", domain, err)
	}
	return parsed.Disks, nil
}

func (c *Connection) domainLeftovers(ctx context.Context, domain string) ([]string, error) {
	var found []string
	state, err := c.Virsh(ctx, "domstate", domain)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(state) == "paused" {
		found = append(found, fmt.Sprintf("domain %s is paused", domain))
	}
	live, err := c.disks(ctx, domain)
	if err != nil {
		return nil, err
	}
	persistent, err := c.disks(ctx, domain, "--inactive")
	if err != nil {
		return nil, err
	}
	compared := slices.Clone(live)
	for i := range min(len(live), len(persistent)) {
		if persistent[i].BackingStore.Type == "" { // libvirt looks for the images below when a guest starts
			compared[i].BackingStore.Type = ""
		}
	}
	if diff := cmp.Diff(persistent, compared); diff != "" {
		found = append(found, fmt.Sprintf("domain %s runs with other disks than it has (-persistent +live):\n%s", domain, diff))
	}
	for _, d := range live {
		if d.Mirror != nil {
			found = append(found, fmt.Sprintf("domain %s has a %s job on %s", domain, d.Mirror.Job, d.Target.Dev))
		}
		if d.BackingStore.Type != "" {
			found = append(found, fmt.Sprintf("domain %s has an overlay on %s: %s", domain, d.Target.Dev, d.Source.File+d.Source.Dev)) // it has one of them
		}
	}
	return found, nil
}

// isAsked reports whether libvirtd has started a QEMU to ask for its features, as it does after its
// own start. On a busy machine such a process lives for some seconds.
func isAsked(pid int) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err != nil || bytes.Contains(args, []byte("\x00-machine\x00none,"))
}

// strayGuests finds QEMU processes that libvirtd has no pid file for.
func (l *Libvirtd) strayGuests() ([]string, error) {
	known := make(map[int]bool)
	paths, err := filepath.Glob(filepath.Join(l.RunDir, "qemu", "*.pid"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the guest ended since
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
			known[pid] = true
		}
	}
	procs, err := processesOf(l.Dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, p := range procs {
		if strings.HasPrefix(p.name, "qemu") && !known[p.pid] && !isAsked(p.pid) {
			found = append(found, fmt.Sprintf("process %d (%s) belongs to no domain", p.pid, p.name))
		}
	}
	return found, nil
}

// strayDevices finds mounts and loop devices below dir that no claim of a
// living process accounts for.
func strayDevices(dir string) ([]string, error) {
	all, err := claims()
	if err != nil {
		return nil, err
	}
	claimed := func(path string) bool {
		return slices.ContainsFunc(all, func(c *claim) bool { return (c.Dir == path || statusDir(c.Dir) == path) && !c.dead() })
	}
	mounts, err := mountsUnder(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, m := range mounts {
		if !claimed(m) {
			found = append(found, "mount "+m)
		}
	}
	loops, err := loopDevices()
	if err != nil {
		return nil, err
	}
	for device, file := range loops {
		if within(dir, file) && !claimed(file) {
			found = append(found, fmt.Sprintf("loop device %s of %s", device, file))
		}
	}
	return found, nil
}

// filesIn lists what is in a directory, if there is one.
func filesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		found = append(found, "file "+filepath.Join(dir, e.Name()))
	}
	return found, nil
}
