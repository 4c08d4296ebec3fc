// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// litestreamPage is what the test does, word for word.
const litestreamPage = "docs/how-to/replicate-the-registry.md"

// replica is Litestream, which replicates the database of a cluster as the page says.
type replica struct {
	*cluster
	bin, configFile, socket, log string
	blocks                       []site.Block
	done                         map[int]bool // of the blocks
	reader                       site.Reader
	cmd                          *exec.Cmd
	alone                        *exec.Cmd // the registry that no host reaches
}

func newReplica(t *testing.T, c *cluster) *replica {
	t.Helper()
	r := &replica{
		cluster: c, bin: binaries(t),
		configFile: filepath.Join(c.Dir, "litestream.yml"), socket: filepath.Join(c.Dir, "litestream.sock"), log: filepath.Join(c.Dir, "litestream.log"),
		blocks: must(site.ReadPage(litestreamPage))(t), done: map[int]bool{},
	}
	r.reader = site.Reader{
		Names: []string{
			"/var/lib/volferry-registry/alone.sock", c.Socket(),
			"/var/lib/volferry-registry", c.Dir,
			"/etc/volferry/litestream.yml", r.configFile,
			"/mnt/backup", filepath.Join(c.Dir, "backup"),
		},
		Shell: r.shell,
		Others: map[string]func(context.Context, string) error{
			"systemctl stop":                 r.stop,
			"systemctl start":                r.start,
			asRegistry:                       r.asRegistry,
			asRegistry + " " + registryAlone: r.startAlone,
		},
	}
	i := slices.IndexFunc(r.blocks, func(b site.Block) bool { return b.Language == "yaml" })
	if i < 0 {
		t.Fatalf("%s has no configuration", litestreamPage)
	}
	// What the page leaves off is how the test asks for what it would else have to wait for.
	text := strings.NewReplacer(r.reader.Names...).Replace(r.blocks[i].Text) + "socket: {enabled: true, path: " + r.socket + "}\n"
	if err := os.WriteFile(r.configFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.kill()
		if t.Failed() {
			t.Log(site.Tails(r.log))
		}
	})
	return r
}

// shell runs a line of the page on the machine of the test.
func (r *replica) shell(ctx context.Context, line string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = append(os.Environ(), "PATH="+r.bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return string(out), "", err
}

// How the page runs a program as the registry's user, and the registry for its reader alone.
const (
	asRegistry    = "runuser -u volferry-registry --"
	registryAlone = "volferry-registry --listen off"
)

// here is a line as whoever the test is, as its registry has no user of its own.
func (r *replica) here(line string) string {
	line = strings.TrimPrefix(line, asRegistry+" ")
	if strings.HasPrefix(line, "volferry-registry ") {
		line += " --config " + filepath.Join(r.Dir, "empty.toml") + " --db " + r.DB()
	}
	return line
}

// asRegistry runs a line of the registry's user.
func (r *replica) asRegistry(ctx context.Context, line string) error {
	_, _, err := r.shell(ctx, r.here(line))
	return err
}

// startAlone starts the registry of a line, and returns when it answers at its socket.
func (r *replica) startAlone(ctx context.Context, line string) (err error) {
	if r.alone, err = r.begin(ctx, r.Log(), strings.Fields(r.here(line))...); err != nil {
		return err
	}
	return r.until(ctx, func(ctx context.Context) error {
		_, err := r.local.Status(ctx)
		return err
	})
}

// interrupt ends the registry that was started alone, as Ctrl-C does.
func (r *replica) interrupt(t *testing.T) {
	t.Helper()
	if err := r.alone.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := r.alone.Wait(); err != nil {
		t.Fatal(err)
	}
}

// begin starts a built program with its log appended to a file. It dies with the test.
func (r *replica) begin(ctx context.Context, log string, args ...string) (*exec.Cmd, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(r.bin, args[0]), args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	return cmd, nil
}

// until repeats what fails as long as a program is not ready, for a minute.
func (r *replica) until(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("it does not get ready: %w", err)
		}
	}
}

// stop stands for systemctl stop.
func (r *replica) stop(_ context.Context, line string) error {
	for unit := range strings.FieldsSeq(line) {
		switch unit {
		case "volferry-registry.service":
			r.Stop()
		case "volferry-registry-litestream.service":
			r.kill()
		}
	}
	return nil
}

// start stands for systemctl start.
func (r *replica) start(ctx context.Context, line string) error {
	for unit := range strings.FieldsSeq(line) {
		var err error
		switch unit {
		case "volferry-registry.service":
			err = r.Start(ctx)
		case "volferry-registry-litestream.service":
			err = r.replicate(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// replicate starts Litestream and returns once all that is acknowledged by now is
// replicated.
func (r *replica) replicate(ctx context.Context) (err error) {
	if r.cmd, err = r.begin(ctx, r.log, "litestream", "replicate", "-config", r.configFile); err != nil {
		return err
	}
	return r.until(ctx, r.sync)
}

// sync returns once all that is acknowledged by now is replicated.
func (r *replica) sync(ctx context.Context) error {
	_, _, err := r.shell(ctx, "litestream sync -wait -socket "+r.socket+" "+r.DB())
	return err
}

// kill ends Litestream as the death of its machine would.
func (r *replica) kill() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// do does the block of the page that begins so.
func (r *replica) do(t *testing.T, begins string) {
	t.Helper()
	for i, b := range r.blocks {
		if strings.HasPrefix(b.Text, begins) {
			if err := r.reader.Do(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			r.done[i] = true
			return
		}
	}
	t.Fatalf("%s has no block that begins with %q", litestreamPage, begins)
}

// busy keeps the registry at work until end is called: each of some clients registers a
// volume, attaches and migrates it, and begins anew.
func (c *cluster) busy(t *testing.T, hosts ...*host) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	for _, l := range c.ledgers(t, 8, hosts...) {
		group.Go(func() error {
			for ctx.Err() == nil {
				if err := l.life(ctx, ctx.Done()); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	return func() {
		stop()
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// attach attaches a volume to a new instance, which it returns.
func (c *cluster) attach(t *testing.T, h *host, volume string) (instance string) {
	t.Helper()
	instance = c.instance(t, h)
	if err := attachTo(t.Context(), c.of(t, h), h, volume, instance, uuid.NewString()); err != nil {
		t.Fatal(err)
	}
	return instance
}

// lose has the machine of the registry die under load. After the last thing that was
// replicated host a gets the volume taken, is told so, and is the only one to know.
// Host b knows of nothing that was not replicated.
func (r *replica) lose(t *testing.T, taken string) {
	t.Helper()
	a, b, others := r.hosts[0], r.hosts[1], r.hosts[2:]
	end := r.busy(t, others...)
	for range 5 {
		if err := pause(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if err := r.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.report(t.Context(), r.of(t, b)); err != nil {
		t.Fatal(err)
	}
	if err := r.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.kill()
	r.attach(t, a, taken)
	if err := a.report(t.Context(), r.of(t, a)); err != nil {
		t.Fatal(err)
	}
	if a.mark.Load().Seq <= b.mark.Load().Seq {
		t.Fatalf("host a was told of event %d, and host b of event %d before", a.mark.Load().Seq, b.mark.Load().Seq)
	}
	r.Kill()
	end()
	t.Logf("event %d is the last that was replicated for certain, and host a was told of %d", b.mark.Load().Seq, a.mark.Load().Seq)
}

// putAside stops what runs and puts aside what there is of a database.
func (r *replica) putAside(t *testing.T) {
	t.Helper()
	r.do(t, "systemctl stop")
	r.do(t, "mkdir -m 0700")
}

// attachedTo is the instances that a volume is attached to, by the registry.
func (c *cluster) attachedTo(t *testing.T, volume string) (instances []string) {
	t.Helper()
	v := reads(t, func(ctx context.Context) (api.Volume, error) { return c.local.Volume(ctx, volume) })
	for _, a := range v.Attachments {
		instances = append(instances, a.InstanceID)
	}
	return instances
}

// The machine of the registry dies with its storage, after hosts were told more than
// Litestream had replicated. What it restores gives no volume to two hosts: neither where the
// operator goes by the page, nor where a host that knows more comes before that.
func TestWhatLitestreamRestoresMeetsHostsThatKnowMore(t *testing.T) {
	if os.Getenv(longEnv) != "long" {
		t.Skip("left to make test-registry, which builds Litestream")
	}
	if _, err := os.Stat(filepath.Join(binaries(t), "litestream")); err != nil {
		t.Skipf("Litestream is not there, and make litestream says why: %v", err)
	}
	c := newCluster(t, "a", "b", "busy", "busier")
	a, b := c.hosts[0], c.hosts[1]
	kept, taken := c.volume(t, a, oneType).ID, c.volume(t, a, oneType).ID
	other := c.instance(t, b)
	atB := c.attach(t, b, kept)
	r := newReplica(t, c)
	if err := r.replicate(t.Context()); err != nil {
		t.Fatal(err)
	}

	r.lose(t, taken)
	// Another machine: nothing is left but the configuration and the TLS directory, and the
	// package has started a registry.
	for _, file := range must(filepath.Glob(filepath.Join(c.Dir, "*registry.db*")))(t) {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
	}
	c.mustStart(t)
	r.putAside(t)
	told := *a.mark.Load()
	r.do(t, asRegistry+" litestream restore")
	r.do(t, "sed -i")
	r.do(t, asRegistry+" "+registryAlone)
	if err := a.report(t.Context(), a.daemon); api.CodeOf(err) != api.CodeRegistryUnavailable || *a.mark.Load() != told {
		t.Errorf("report before the restore was accepted: %v, mark %+v after %+v", err, *a.mark.Load(), told)
	}
	if got := c.attachedTo(t, kept); !slices.Equal(got, []string{atB}) {
		t.Errorf("the volume that was attached before the last copy is attached to %v", got)
	}
	if got := c.attachedTo(t, taken); len(got) > 0 {
		t.Fatalf("the copy has what was acknowledged after it: %v", got)
	}
	r.do(t, "volferryctl --socket")
	r.interrupt(t)
	r.do(t, asRegistry+" volferry-registry accept-restore")
	r.do(t, "systemctl start")
	wantCode(t, b.report(t.Context(), c.of(t, b)), api.CodeStaleEpoch, "host b")
	c.comeBack(t, b)
	wantCode(t, attachOnce(t, c, b, taken, other), api.CodeRegistryUnavailable, "host a")
	c.comeBack(t, a)
	if now := *a.mark.Load(); now.Timeline <= told.Timeline || now.RegistryID != told.RegistryID {
		t.Errorf("mark = %+v after %+v", now, told)
	}
	for _, h := range c.hosts[2:] {
		c.comeBack(t, h)
	}
	atA := c.attach(t, a, taken)
	wantCode(t, attachOnce(t, c, b, taken, other), api.CodeVolumeInUse, "")
	c.checkInvariants(t)

	// Once more, on the machine as it was left, and with the hosts there at once.
	r.reader.Names = append([]string{"/registry-1", "/registry-2", "/registry-2", "/registry-3"}, r.reader.Names...)
	more := c.volume(t, a, oneType).ID
	r.lose(t, more)
	told = *a.mark.Load()
	if err := os.Rename(filepath.Join(c.Dir, "lost"), filepath.Join(c.Dir, "lost-first")); err != nil {
		t.Fatal(err)
	}
	r.putAside(t)
	r.do(t, asRegistry+" litestream restore")
	r.do(t, "sed -i")
	c.mustStart(t)
	wantCode(t, attachOnce(t, c, b, more, other), api.CodeRegistryUnavailable, "has not heard from host b yet")
	wantCode(t, a.report(t.Context(), c.of(t, a)), api.CodeRegistryUnavailable, "accept-restore")
	if *a.mark.Load() != told {
		t.Errorf("host a was told %+v, and shows %+v", told, *a.mark.Load())
	}
	checkReadOnly(t, c, b, more, other)
	if got := c.attachedTo(t, taken); !slices.Equal(got, []string{atA}) {
		t.Errorf("the volume that was attached after the first loss is attached to %v", got)
	}
	c.accept(t)
	c.comeBack(t, b)
	wantCode(t, attachOnce(t, c, b, more, other), api.CodeRegistryUnavailable, "host a")
	for _, h := range slices.Concat(c.hosts[:1], c.hosts[2:]) {
		c.comeBack(t, h)
	}
	c.attach(t, a, more)
	c.checkInvariants(t)
	if err := r.replicate(t.Context()); err != nil {
		t.Errorf("the restored registry is not replicated: %v", err)
	}
	for i, b := range r.blocks {
		if b.Language == site.Shell && !r.done[i] {
			t.Errorf("%s has what was not done: %s", litestreamPage, b.Text)
		}
	}
}
