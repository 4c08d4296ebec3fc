// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// CephPools are the pools of a Ceph cluster.
var CephPools = []string{"rbd", "fast"}

// CephUser is the user of a cluster that guests and the daemon are.
const CephUser = "volferry"

// Ceph is a small Ceph cluster: one monitor and one OSD on a file, without copies.
type Ceph struct {
	// ID is the cluster's, its fsid.
	ID string
	// Monitor is HOST:PORT.
	Monitor string
	// Key is that of CephUser.
	Key string
	// Secret is the UUID of the secret of libvirt's that has the key.
	Secret string

	dir      string
	mon, osd *exec.Cmd
}

// cephTools are the programs of a cluster, and what QEMU and libvirt need for one, with the Debian
// package of each.
var cephTools = map[string]string{
	"/usr/bin/ceph-mon":            "ceph-mon",
	"/usr/bin/ceph-osd":            "ceph-osd",
	"/usr/bin/rbd":                 "ceph-common",
	"/usr/bin/qemu-storage-daemon": "qemu-system-common",
	"/usr/lib/*/qemu/block-rbd.so": "qemu-block-extra",
}

// RequireCeph skips the test, or fails it as SkipOrFail does, where no cluster can be made.
func RequireCeph(tb testing.TB) {
	tb.Helper()
	var missing []string
	for file, name := range cephTools {
		if found, err := filepath.Glob(file); err != nil || len(found) == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		SkipOrFail(tb, "a Ceph cluster needs the packages "+strings.Join(missing, ", ")+"; make ceph installs them")
	}
}

const cephConf = `[global]
fsid = %[1]s
mon host = [v2:%[2]s,v1:%[3]s]
mon initial members = a
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail crit = 1
keyring = %[4]s/keyring
admin socket = %[4]s/$name.asok
log file = %[4]s/$name.log
run dir = %[4]s
public addr = 127.0.0.1
mon data = %[4]s/mon
osd data = %[4]s/osd
bluestore block size = 17179869184
osd memory target = 939524096
osd class update on start = false
`

// StartCeph makes a cluster in a directory, with the pools CephPools. Close must be called.
func StartCeph(ctx context.Context, dir string) (*Ceph, error) {
	c := &Ceph{ID: uuid.NewString(), Secret: uuid.NewString(), dir: dir}
	if err := c.make(ctx); err != nil {
		return nil, fmt.Errorf("start a Ceph cluster: %w", errors.Join(err, c.Close()))
	}
	return c, nil
}

func (c *Ceph) make(ctx context.Context) error {
	v2, err := FreeAddress(ctx)
	if err == nil {
		c.Monitor, err = FreeAddress(ctx)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(filepath.Join(c.dir, "mon"), 0o700), os.Mkdir(filepath.Join(c.dir, "osd"), 0o700),
		os.WriteFile(c.conf(), fmt.Appendf(nil, cephConf, c.ID, v2, c.Monitor, c.dir), 0o600)); err != nil {
		return err
	}
	keys, first, osdKeys := filepath.Join(c.dir, "keyring"), filepath.Join(c.dir, "monmap"), c.osdKeys()
	if err := c.all(ctx,
		[]string{"ceph-authtool", "--create-keyring", keys, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"},
		[]string{"ceph-authtool", keys, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *"},
		[]string{"ceph-authtool", keys, "--gen-key", "-n", "client." + CephUser, "--cap", "mon", "profile rbd", "--cap", "osd", "profile rbd"},
		[]string{"ceph-authtool", "--create-keyring", osdKeys, "--gen-key", "-n", "osd.0", "--cap", "mon", "allow profile osd", "--cap", "osd", "allow *"},
		[]string{"monmaptool", "--create", "--fsid", c.ID, "--addv", "a", fmt.Sprintf("[v2:%s,v1:%s]", v2, c.Monitor), first},
		[]string{"ceph-mon", "-c", c.conf(), "--mkfs", "-i", "a", "--monmap", first, "--keyring", keys},
	); err != nil {
		return err
	}
	if err := c.StartMon(); err != nil {
		return err
	}
	id := uuid.NewString()
	if err := c.all(ctx,
		[]string{"ceph", "-c", c.conf(), "osd", "new", id},
		[]string{"ceph", "-c", c.conf(), "auth", "add", "osd.0", "-i", osdKeys},
		[]string{"ceph-osd", "-c", c.conf(), "-i", "0", "--mkfs", "--osd-uuid", id, "--keyring", osdKeys},
	); err != nil {
		return err
	}
	if err := c.StartOSD(); err != nil {
		return err
	}
	for _, pool := range CephPools {
		if err := c.all(ctx, []string{"ceph", "-c", c.conf(), "osd", "pool", "create", pool, "8", "8"}, []string{"rbd", "-c", c.conf(), "pool", "init", pool}); err != nil {
			return err
		}
	}
	key, err := run(ctx, "ceph-authtool", keys, "-n", "client."+CephUser, "--print-key")
	c.Key = strings.TrimSpace(key)
	return err
}

func (c *Ceph) conf() string { return filepath.Join(c.dir, "ceph.conf") }

func (c *Ceph) osdKeys() string { return filepath.Join(c.dir, "osd", "keyring") }

// all runs commands one after the other. Each is given time to wait for the cluster.
func (*Ceph) all(ctx context.Context, commands ...[]string) error {
	for _, command := range commands {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		_, err := run(ctx, command[0], command[1:]...)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// StartMon starts the monitor.
func (c *Ceph) StartMon() (err error) {
	c.mon, err = c.start("ceph-mon", "-i", "a")
	return err
}

// StartOSD starts the OSD.
func (c *Ceph) StartOSD() (err error) {
	c.osd, err = c.start("ceph-osd", "-i", "0", "--keyring", c.osdKeys())
	return err
}

func (c *Ceph) start(program string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(program, append([]string{"-c", c.conf(), "-f"}, args...)...) //nolint:noctx // it outlives the call
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return cmd, nil
}

// KillOSD kills the OSD: nothing is read or written until StartOSD.
func (c *Ceph) KillOSD() error { return kill(&c.osd) }

// KillMon kills the monitor: nobody connects until StartMon.
func (c *Ceph) KillMon() error { return kill(&c.mon) }

func kill(cmd **exec.Cmd) error {
	if *cmd == nil {
		return nil
	}
	err := (*cmd).Process.Kill()
	_ = (*cmd).Wait() // by the signal
	*cmd = nil
	return err
}

// Close ends the cluster. Its files stay.
func (c *Ceph) Close() error { return errors.Join(c.KillOSD(), c.KillMon()) }

// RBD runs rbd as the cluster's administrator.
func (c *Ceph) RBD(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return run(ctx, "rbd", append([]string{"-c", c.conf()}, args...)...)
}

// URI is the address of an image, POOL/IMAGE, and the path of a volume there.
func (c *Ceph) URI(spec string) string { return "rbd://" + c.ID + "/" + spec }

// RBDImage is an image of a cluster, for a guest.
type RBDImage struct {
	*Ceph

	Spec string // POOL/IMAGE
}

// URI is the address of the image.
func (i RBDImage) URI() string { return i.Ceph.URI(i.Spec) }

// Host is that of the cluster's monitor.
func (i RBDImage) Host() string { host, _, _ := net.SplitHostPort(i.Monitor); return host }

// Port is that of the cluster's monitor.
func (i RBDImage) Port() string { _, port, _ := net.SplitHostPort(i.Monitor); return port }

// User is the cluster's user.
func (RBDImage) User() string { return CephUser }

// Import makes an image of a raw file.
func (c *Ceph) Import(ctx context.Context, file, spec string) (RBDImage, error) {
	_, err := c.RBD(ctx, "import", "--no-progress", file, spec)
	return RBDImage{c, spec}, err
}

// Export writes the content of an image to a file that is not there.
func (c *Ceph) Export(ctx context.Context, spec, file string) error {
	_, err := c.RBD(ctx, "export", "--no-progress", spec, file)
	return err
}

// Watchers are the clients that have an image open for writing.
func (c *Ceph) Watchers(ctx context.Context, spec string) (int, error) {
	text, err := c.RBD(ctx, "status", "--format", "json", spec)
	if err != nil {
		return 0, err
	}
	var status struct{ Watchers []any }
	err = json.Unmarshal([]byte(text), &status)
	return len(status.Watchers), err
}

// Snapshots are the names of the snapshots of an image.
func (c *Ceph) Snapshots(ctx context.Context, spec string) (names []string, err error) {
	text, err := c.RBD(ctx, "snap", "ls", "--format", "json", spec)
	if err != nil {
		return nil, err
	}
	var all []struct{ Name string }
	err = json.Unmarshal([]byte(text), &all)
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names, err
}

// Write writes to an image, as a program does that nobody has asked to.
func (c *Ceph) Write(ctx context.Context, spec string, offset int64, data []byte) error {
	file := filepath.Join(c.dir, "write")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := run(ctx, "qemu-io", "-c", fmt.Sprintf("write -s %s %d %d", file, offset, len(data)), "-c", "flush", "--image-opts", c.imageOpts(spec))
	return errors.Join(err, os.Remove(file))
}

// imageOpts is an image as qemu-io opens it.
func (c *Ceph) imageOpts(spec string) string {
	pool, image, _ := strings.Cut(spec, "/")
	return fmt.Sprintf("driver=rbd,pool=%s,image=%s,conf=%s", pool, image, c.conf())
}

// GiveSecret has a libvirtd keep the key of the cluster's user.
func (c *Ceph) GiveSecret(ctx context.Context, l *Connection) error {
	file := filepath.Join(l.Dir, "secret-"+c.Secret)
	text := fmt.Sprintf("<secret ephemeral='no' private='no'><uuid>%s</uuid><usage type='ceph'><name>%[1]s</name></usage></secret>", c.Secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if _, err := l.Virsh(ctx, "secret-define", file); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(c.Key), 0o600); err != nil {
		return err
	}
	_, err := l.Virsh(ctx, "secret-set-value", c.Secret, "--file", file)
	return errors.Join(err, os.Remove(file))
}

// Hold opens an image for writing, as a guest does, until the function that it returns is called.
func (c *Ceph) Hold(tb testing.TB, spec string) (release func()) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "qemu-io", "-c", "read 0 512", "-c", "sleep 600000", "--image-opts", c.imageOpts(spec))
	before, err := c.Watchers(tb.Context(), spec)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	if !poll(time.Minute, func() bool { n, err := c.Watchers(tb.Context(), spec); return err == nil && n > before }) {
		tb.Errorf("nobody watches %s", spec)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // by the signal
	}
}
