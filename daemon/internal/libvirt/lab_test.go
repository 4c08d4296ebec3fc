// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/libvirt"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/test/lab"
)

// callTimeout is long enough for a busy machine.
const callTimeout = 45 * time.Second

// realEnv is the conformance suite's view of a private libvirtd, which may have several views: each
// has its own connection, pool and images. Its guests have firmware and no operating system; their
// writes go through QEMU's monitor into the same block layer.
type realEnv struct {
	libvirtd *lab.Libvirtd
	conn     *libvirt.Conn
	pool     string
	dir      string
	paths    int
}

// newRealEnv starts a libvirtd and a connection to it, or skips the test if that is impossible.
func newRealEnv(t *testing.T) *realEnv {
	t.Helper()
	lab.Require(t)
	return realEnvIn(t, lab.TempDir(t))
}

// realEnvIn is newRealEnv for a libvirtd with its files below dir.
func realEnvIn(t *testing.T, dir string) *realEnv {
	t.Helper()
	installHook(t, dir)
	libvirtd, err := lab.StartLibvirtd(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := libvirtd.Close(); err != nil {
			t.Error(err)
		}
	})
	env := viewOf(t, libvirtd, "images")
	// A new libvirtd probes every QEMU before it answers this. On a busy machine that takes longer
	// than callTimeout.
	env.virsh(t, "capabilities")
	must(t, libvirtd.HandOnCapabilities())
	env.run(t)
	return env
}

// viewOf returns a view of a libvirtd with a unique name.
func viewOf(t *testing.T, libvirtd *lab.Libvirtd, name string) *realEnv {
	t.Helper()
	env := &realEnv{libvirtd: libvirtd, conn: newConn(t, libvirtd, callTimeout), pool: name, dir: filepath.Join(libvirtd.Dir, name)}
	for _, d := range []string{env.dir, env.dir + "/pool"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env.virsh(t, "pool-create-as", env.pool, "dir", "--target", env.dir+"/pool")
	return env
}

// newConn returns a connection that is not up yet.
func newConn(t *testing.T, libvirtd *lab.Libvirtd, callTimeout time.Duration) *libvirt.Conn {
	t.Helper()
	return libvirt.New(libvirt.Config{
		Socket: libvirtd.Socket, CallTimeout: callTimeout, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		DefinitionsDir: filepath.Join(libvirtd.Dir, "etc", "qemu"), StateDir: libvirtd.StateDir(),
	})
}

// views returns n views of this view's libvirtd, including this one.
func (e *realEnv) views(t *testing.T, n int) []*realEnv {
	t.Helper()
	all := []*realEnv{e}
	for len(all) < n {
		next := viewOf(t, e.libvirtd, fmt.Sprint("images", len(all)))
		next.run(t)
		all = append(all, next)
	}
	return all
}

// hookScript refuses to start a domain with a reason in refused/NAME, and a domain without the text
// of tokens/NAME in its XML.
const hookScript = `#!/bin/sh
case "$2 $3" in "prepare begin") ;; *) exit 0 ;; esac
[ ! -e '%[1]s'/"$1" ] || { cat '%[1]s'/"$1" >&2; exit 1; }
[ ! -e '%[2]s'/"$1" ] || grep -qF "$(cat '%[2]s'/"$1")" || { echo "it has no pass" >&2; exit 1; }
`

// noLeaks fails the test if a goroutine outlives everything that the test starts after this call.
func noLeaks(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
}

// installHook must run before libvirtd starts, because libvirtd looks only once for a hook.
func installHook(t *testing.T, dir string) {
	t.Helper()
	hooks, refused, tokens := filepath.Join(dir, "etc", "hooks"), filepath.Join(dir, "refused"), filepath.Join(dir, "tokens")
	must(t, os.MkdirAll(hooks, 0o755))
	must(t, os.Mkdir(refused, 0o755))
	must(t, os.Mkdir(tokens, 0o755))
	must(t, os.WriteFile(filepath.Join(hooks, "qemu"), fmt.Appendf(nil, hookScript, refused, tokens), 0o755))
}

// leftToTestConformance skips a test that takes too long for make test.
func leftToTestConformance(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: left to make test-conformance")
	}
}

func (e *realEnv) Refuse(tb testing.TB, id, why string) func() {
	tb.Helper()
	path := filepath.Join(e.libvirtd.Dir, "refused", strings.TrimSpace(e.virsh(tb, "domname", id)))
	if err := os.WriteFile(path, []byte(why+"\n"), 0o644); err != nil {
		tb.Fatal(err)
	}
	allow := func() {
		if err := os.RemoveAll(path); err != nil {
			tb.Error(err)
		}
	}
	tb.Cleanup(allow)
	return allow
}

func (e *realEnv) RefuseWithout(tb testing.TB, id, token string) {
	tb.Helper()
	path := filepath.Join(e.libvirtd.Dir, "tokens", strings.TrimSpace(e.virsh(tb, "domname", id)))
	if err := os.WriteFile(path, []byte(token), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// run keeps the connection up until the end of the test, and returns when it is up.
func (e *realEnv) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- e.conn.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	<-e.conn.Ready()
	if !e.conn.Up() {
		t.Error("ready without the libvirtd that is there")
	}
	await(t, e.conn.Events(t.Context()), hv.EventConnected)
}

// await reads events until one of this kind comes.
func await(t *testing.T, events <-chan hv.Event, kind hv.EventKind) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case ev := <-events:
			if ev.Kind == kind {
				return
			}
		case <-timeout:
			t.Fatalf("no event %s", kind)
		}
	}
}

func (e *realEnv) virsh(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := e.libvirtd.Virsh(context.Background(), args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func command(tb testing.TB, program string, args ...string) string {
	tb.Helper()
	out, err := exec.CommandContext(context.Background(), program, args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (e *realEnv) Hypervisor() hv.Hypervisor { return e.conn }

func (e *realEnv) Pool(testing.TB) string { return e.pool }

func (e *realEnv) Path(tb testing.TB, name string) string {
	tb.Helper()
	e.paths++
	path := filepath.Join(e.dir, fmt.Sprintf("%d-%s", e.paths, name))
	tb.Cleanup(func() {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			tb.Error(err)
		}
	})
	return path
}

func (e *realEnv) CreateImage(tb testing.TB, path, format string, sizeBytes int64) {
	tb.Helper()
	command(tb, "qemu-img", "create", "-q", "-f", format, path, fmt.Sprint(sizeBytes))
}

func (e *realEnv) CreateOverlay(tb testing.TB, path string, backing hv.Image, sizeBytes int64) {
	tb.Helper()
	command(tb, "qemu-img", "create", "-q", "-u", "-f", "qcow2", "-o", "compat=1.1,extended_l2=on",
		"-F", backing.Format, "-b", backing.Path, path, fmt.Sprint(sizeBytes))
}

func (e *realEnv) BlockDevice(tb testing.TB, sizeBytes int64) string {
	tb.Helper()
	path := e.Path(tb, "device.img")
	e.CreateImage(tb, path, hvtest.Raw, sizeBytes)
	device := strings.TrimSpace(command(tb, "losetup", "--find", "--show", path))
	tb.Cleanup(func() { command(tb, "losetup", "--detach", device) })
	return device
}

func (e *realEnv) CreateOnDevice(tb testing.TB, path string, sizeBytes int64) {
	tb.Helper()
	e.CreateImage(tb, path, hvtest.Qcow2, sizeBytes)
}

func (e *realEnv) DisableBitmap(tb testing.TB, path, name string) {
	tb.Helper()
	command(tb, "qemu-img", "bitmap", "-f", hvtest.Qcow2, "--disable", path, name)
}

func (e *realEnv) AddBitmap(tb testing.TB, path, name string) {
	tb.Helper()
	command(tb, "qemu-img", "bitmap", "-f", hvtest.Qcow2, "--add", "--enable", path, name)
}

func (e *realEnv) WriteImage(tb testing.TB, img hv.Image, block int64, value byte) {
	tb.Helper()
	command(tb, "qemu-io", "-f", img.Format, "-c", ioCommand("write", block, value), img.Path)
}

func (e *realEnv) CheckImage(tb testing.TB, img hv.Image, block int64, value byte) {
	tb.Helper()
	checkRead(tb, command(tb, "qemu-io", "-U", "-r", "-f", img.Format, "-c", ioCommand("read", block, value), img.Path))
}

// ioCommand returns a command of qemu-io, which QEMU's monitor command of that name shares. A read
// with a pattern compares.
func ioCommand(verb string, block int64, value byte) string {
	return fmt.Sprintf("%s -P %d %d %d", verb, value, block*hvtest.BlockSize, hvtest.BlockSize)
}

func checkRead(tb testing.TB, out string) {
	tb.Helper()
	if !strings.Contains(out, "read 4096/4096 bytes") || strings.Contains(out, "failed") {
		tb.Errorf("qemu-io: %s", out)
	}
}

func (e *realEnv) Define(tb testing.TB, d hv.Domain) {
	tb.Helper()
	var doc bytes.Buffer
	if err := domainXML.Execute(&doc, d); err != nil {
		tb.Fatal(err)
	}
	e.defineXML(tb, d.Name, doc.String())
	tb.Cleanup(func() {
		if strings.TrimSpace(e.virsh(tb, "domstate", d.ID)) != "shut off" {
			e.Destroy(tb, d.ID)
		}
		e.virsh(tb, "undefine", d.ID)
	})
}

func (e *realEnv) defineXML(tb testing.TB, name, doc string) {
	tb.Helper()
	path := filepath.Join(e.dir, name+".xml")
	if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
		tb.Fatal(err)
	}
	e.virsh(tb, "define", path)
}

// domainXML has an element, <blockio>, that is unknown to package hv.
var domainXML = template.Must(template.New("domain").Funcs(template.FuncMap{"text": escape, "export": exportXML}).Parse(`
<domain type='qemu'>
  <name>{{.Name}}</name>
  <uuid>{{.ID}}</uuid>
  <memory unit='bytes'>{{.MemoryBytes}}</memory>
  <vcpu>1</vcpu>
  <os><type machine='pc'>hvm</type></os>
  <features><acpi/></features>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <memballoon model='none'/>
    {{- range .Config}}
    <disk type='{{if .Chain}}{{.Top.Type}}{{else}}file{{end}}' device='{{.Device}}'>
      {{- if .Chain}}
      <driver name='qemu' type='{{.Top.Format}}'
        {{- if .Cache}} cache='{{.Cache}}'{{end}}
        {{- if .Discard}} discard='{{.Discard}}'{{end}}
        {{- if .ErrorPolicy}} error_policy='{{.ErrorPolicy}}'{{end}}/>
      {{- template "chain" .Chain}}
      <blockio logical_block_size='512' physical_block_size='4096'/>
      {{- end}}
      <target dev='{{.Target}}' bus='{{.Bus}}'/>
      {{- if .Shareable}}<shareable/>{{end}}
      {{- if .ReadOnly}}<readonly/>{{end}}
      {{- if .Serial}}<serial>{{text .Serial}}</serial>{{end}}
      {{- if .BootOrder}}<boot order='{{.BootOrder}}'/>{{end}}
    </disk>
    {{- end}}
  </devices>
</domain>
{{- define "source"}}{{if eq .Type "network"}}{{export .}}{{else}}<source {{if eq .Type "block"}}dev{{else}}file{{end}}='{{text .Path}}'/>{{end}}{{end}}
{{- define "chain"}}
      {{- range $depth, $img := .}}
        {{- if $depth}}<backingStore type='{{.Type}}'><format type='{{.Format}}'/>{{end}}
        {{- template "source" .}}
      {{- end}}
      <backingStore/>
      {{- range $depth, $img := .}}{{if $depth}}</backingStore>{{end}}{{end}}
{{- end}}`))

func escape(s string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(s)) // a strings.Builder never fails
	return out.String()
}

func (e *realEnv) Start(tb testing.TB, id string) {
	tb.Helper()
	e.virsh(tb, "start", id)
}

func (e *realEnv) Destroy(tb testing.TB, id string) {
	tb.Helper()
	e.virsh(tb, "destroy", id)
}

// LetGo resets the machine: QEMU removes the requested devices before the firmware starts again. A
// rare reset (one of some hundred) does not do that.
func (e *realEnv) LetGo(tb testing.TB, id, target string) {
	tb.Helper()
	const within = 15 * time.Second
	for range 3 {
		e.virsh(tb, "reset", id)
		gone, err := retry.Poll(tb.Context(), 100*time.Millisecond, within, func() (bool, error) {
			return !strings.Contains(e.virsh(tb, "domblklist", id), " "+target+" "), nil
		})
		if gone || err != nil {
			return
		}
		tb.Logf("%s is there %s after a reset; another one follows", target, within)
	}
}

// BeginBackup starts a backup with a socket for its readers.
func (e *realEnv) BeginBackup(tb testing.TB, id, target string) func() {
	tb.Helper()
	dir := e.Path(tb, "backup")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)); err != nil { //nolint:gosec // QEMU, of another user, makes files there
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	xml := filepath.Join(dir, "backup.xml")
	text := fmt.Sprintf("<domainbackup mode='pull'><server transport='unix' socket='%s'/><disks><disk name='%s' type='file'><scratch file='%s'/></disk></disks></domainbackup>",
		filepath.Join(dir, "nbd"), target, filepath.Join(dir, "scratch.qcow2"))
	if err := os.WriteFile(xml, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	e.virsh(tb, "backup-begin", id, xml)
	return func() { e.virsh(tb, "domjobabort", id) }
}

// GuestWrite writes through the virtual device of a disk, and flushes, so that another process can
// read the data.
func (e *realEnv) GuestWrite(tb testing.TB, id, target string, block int64, value byte) {
	tb.Helper()
	number := strings.Index("abcdefgh", strings.TrimPrefix(target, "vd"))
	device := fmt.Sprintf("/machine/peripheral/virtio-disk%d/virtio-backend", number)
	for _, io := range []string{ioCommand("write", block, value), "flush"} {
		// Returns nothing: its output goes to QEMU's standard output.
		e.virsh(tb, "qemu-monitor-command", id, "--hmp", fmt.Sprintf("qemu-io -d %s %q", device, io))
	}
}

// CheckGuest reads the chain that the process uses, whatever the headers contain.
func (e *realEnv) CheckGuest(tb testing.TB, id, target string, block int64, value byte) {
	tb.Helper()
	d, err := e.conn.Domain(tb.Context(), id)
	if err != nil {
		tb.Fatal(err)
	}
	options, err := json.Marshal(blockdev(d.LiveDisk(target).Chain))
	if err != nil {
		tb.Fatal(err)
	}
	checkRead(tb, command(tb, "qemu-io", "-U", "-r", "-c", ioCommand("read", block, value), "json:"+string(options)))
}

// blockdev describes a chain to QEMU.
func blockdev(chain []hv.Image) map[string]any {
	driver := map[string]string{hv.SourceFile: "file", hv.SourceBlock: "host_device"}[chain[0].Type]
	node := map[string]any{
		"driver": chain[0].Format,
		"file":   map[string]any{"driver": driver, "filename": chain[0].Path},
	}
	if e, err := medium.ParseNBD(chain[0].Path); err == nil {
		node["file"] = map[string]any{"driver": "nbd", "export": e.Name, "server": map[string]any{"type": "unix", "path": e.Socket}}
	}
	if size := chain[0].SliceBytes; size != 0 {
		node["offset"], node["size"] = 0, size
	}
	switch {
	case len(chain) > 1:
		node["backing"] = blockdev(chain[1:])
	case chain[0].Format == hvtest.Qcow2:
		node["backing"] = nil
	}
	return node
}
