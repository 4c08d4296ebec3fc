// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/clusterfs"
	"github.com/volferry/volferry/test/site"
)

func leftToTestClusterFS(t *testing.T) {
	t.Helper()
	if os.Getenv("VOLFERRY_CLUSTERFS") == "" {
		t.Skip("SKIPPED: left to make test-clusterfs")
	}
}

// nodeDomain is a node of a cluster filesystem: TCG, as the lab's guests.
const nodeDomain = `<domain type='qemu'>
  <name>node%[1]d</name>
  <memory unit='MiB'>256</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>%[2]s</kernel>
    <initrd>%[3]s</initrd>
    <cmdline>console=ttyS0 quiet panic=-1 node=%[1]d</cmdline>
  </os>
  <features><acpi/></features>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <interface type='client'>
      <mac address='52:54:00:00:00:0%[1]d'/>
      <source address='127.0.0.1' port='%[4]d'/>
      <model type='virtio'/>
    </interface>
    <serial type='file'><source path='%[5]s' append='on'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>
`

// node is a guest that has a cluster filesystem mounted and writes to it.
type node struct {
	number  int
	host    *site.Host
	console string
}

func (n *node) name() string { return fmt.Sprint("node", n.number) }

var (
	acked  = regexp.MustCompile(`(?m)^NODE (\d) ACK (\d+)\r?$`)
	failed = regexp.MustCompile(`(?mi)^.*(FAILED|ocfs2.*error|self-fence|fencing|evict).*$`)
)

// said is what the node has printed.
func (n *node) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(n.console)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// acked is the last line of its log that the node was told is durable.
func (n *node) acked(t *testing.T) int {
	t.Helper()
	all := acked.FindAllStringSubmatch(n.said(t), -1)
	if len(all) == 0 {
		return 0
	}
	last, err := strconv.Atoi(all[len(all)-1][2])
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// startNode defines a node on a host, which is removed when the test ends, and starts it.
func startNode(t *testing.T, h *site.Host, number, port int) *node {
	t.Helper()
	dir := filepath.Join(h.Libvirtd.Dir, fmt.Sprint("node", number))
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // QEMU's user writes there
		t.Fatal(err)
	}
	kernel, image, err := clusterfs.Boot(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{number: number, host: h, console: filepath.Join(dir, "console")}
	xml := filepath.Join(dir, "domain.xml")
	if err := os.WriteFile(xml, fmt.Appendf(nil, nodeDomain, number, kernel, image, port, n.console), 0o600); err != nil {
		t.Fatal(err)
	}
	n.virsh(t, "define", xml)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = h.Libvirtd.Virsh(ctx, "destroy", n.name()) // it may be off
		if _, err := h.Libvirtd.Virsh(ctx, "undefine", n.name()); err != nil {
			t.Error(err)
		}
	})
	n.virsh(t, "start", n.name())
	return n
}

func (n *node) virsh(t *testing.T, args ...string) {
	t.Helper()
	if _, err := n.host.Libvirtd.Virsh(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// A cluster filesystem of three nodes on two hosts, OCFS2 with the timeouts that it comes with, is
// moved while all of them write to it. None of them is evicted or sees an error, every line that
// a node was told is durable is there, and the filesystem is whole.
func TestThreeNodesOfAClusterFilesystemGoOnWhileItsVolumeMoves(t *testing.T) {
	leftToTestClusterFS(t)
	t.Parallel()
	c := startLiveCluster(t, "hv1", "hv2")
	h1, h2 := c.Hosts[0], c.Hosts[1]
	d := c.volumeOf(t, h1, "db", sharedPool, "clustered", 256<<20)
	if err := clusterfs.Format(t.Context(), d.lab.Path); err != nil {
		t.Fatal(err)
	}
	network, err := clusterfs.NewSwitch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	var nodes []*node
	for i, h := range []*site.Host{h1, h2, h1} {
		n := startNode(t, h, i+1, network.Port())
		nodes = append(nodes, n)
		t.Cleanup(func() {
			if t.Failed() {
				text := n.said(t)
				t.Logf("%s said\n%s", n.name(), text[max(0, len(text)-4000):])
			}
		})
		ctl(t, h.Caller, "instance", "adopt", n.name())
		ctl(t, h.Caller, "volume", "attach", d.Name, n.name())
	}
	goesOn := func(lines int) {
		t.Helper()
		for _, n := range nodes {
			from := n.acked(t)
			eventually(t, n.name()+" writes", func() bool { return n.acked(t) >= from+lines })
		}
	}
	goesOn(20)
	began := time.Now()
	ctl(t, c.Registry.Caller(), "volume", "migrate", d.Name, "--to-pool", newSharedPool, "--live-shared", "--max-pause", "1m", "--yes")
	t.Logf("the move took %s", time.Since(began).Round(time.Second))
	now := get[api.Volume](t, c.Registry.Caller(), "volume", "volume", "show", d.Name)
	if now.Location.Pool != newSharedPool {
		t.Errorf("after the move the volume is %+v", now)
	}
	moves := get[[]api.Migration](t, c.Registry.Caller(), "migrations", "migration", "list", "--all", "--volume", d.Name)
	m := get[api.Migration](t, c.Registry.Caller(), "migration", "migration", "show", moves[0].ID)
	t.Logf("the nodes stood still for %s", api.StoodStill(m.PauseSteps))
	goesOn(100) // of the heartbeats and leases some fall into that time
	told := map[string]int{}
	for _, n := range nodes {
		if why := failed.FindAllString(n.said(t), -1); why != nil {
			t.Errorf("%s: %q", n.name(), why)
		}
		n.virsh(t, "destroy", n.name())
		told[fmt.Sprint(n.number)] = n.acked(t)
	}
	assertClusterHolds(t, nodes[0], now.Location.Path, told)
}

// assertClusterHolds claims that the filesystem in an image has as many lines of each node as it
// was told are durable, once a node has mounted it as after a power cut, and that it is whole.
func assertClusterHolds(t *testing.T, n *node, image string, told map[string]int) {
	t.Helper()
	dir := filepath.Dir(n.console)
	out, err := exec.CommandContext(t.Context(), "qemu-system-x86_64", "-M", "pc", "-accel", "tcg", "-m", "256", "-nodefaults", "-display", "none", "-no-reboot", //nolint:gosec // ours
		"-kernel", filepath.Join(dir, "kernel"), "-initrd", filepath.Join(dir, "initrd"), "-append", fmt.Sprintf("console=ttyS0 quiet panic=-1 node=%d verify", n.number),
		"-drive", "file="+image+",format=raw,cache=none,if=virtio", "-serial", "stdio").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "UNMOUNTED") {
		t.Fatalf("no node mounts what is at the destination: %v\n%s", err, out)
	}
	for number, lines := range told {
		has := regexp.MustCompile(`(?m)^NODE ` + number + ` HAS (\d+)\r?$`).FindStringSubmatch(string(out))
		if has == nil {
			t.Errorf("the log of node %s has gaps\n%s", number, out)
			continue
		}
		if n, err := strconv.Atoi(has[1]); err != nil || n < lines || lines == 0 {
			t.Errorf("node %s was told that %d lines are durable, and there are %s", number, lines, has[1])
		}
		t.Logf("node %s: %s lines, %d told", number, has[1], lines)
	}
	if err := clusterfs.Check(t.Context(), image); err != nil {
		t.Error(err)
	}
}
