// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// longEnv asks for the long form of the tests with "long".
const longEnv = "VOLFERRY_REGISTRY"

// scaled is how much of something a test does in this form.
func scaled[T any](short, long T) T {
	if os.Getenv(longEnv) == "long" {
		return long
	}
	return short
}

const (
	// sharedPool is the one pool of the tests: every host has it, shared, and able
	// to do multiattach.
	sharedPool = "shared"
	// oneType and manyType are volume types, which differ in multiattach alone.
	oneType  = "one"
	manyType = "many"

	volumeBytes = 1 << 20
	// patience is for an answer of a registry that may stand still. It is shorter
	// than many a pause, so that requests are given up that are done later.
	patience = 700 * time.Millisecond
)

// host is a hypervisor as the registry knows it: there is none behind it.
type host struct {
	id, name, tls string
	// epoch is the one that its daemon believes in.
	epoch atomic.Int64
	// rejoining is held by who brings it back after a fence.
	rejoining sync.Mutex
	// mark is the newest mark that it was told.
	mark atomic.Pointer[api.RegistryMark]
	// daemon is its client.
	daemon *client.Registry
}

// cluster is a registry over TLS with hosts and an operator.
type cluster struct {
	*site.Registry
	hosts    []*host
	operator *client.Registry
	// local is at the registry's own socket, and does there what daemons do.
	local *client.Registry
}

// binaries is where the built programs are.
func binaries(t *testing.T) string {
	t.Helper()
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(root, "bin")
	if _, err := os.Stat(filepath.Join(bin, "volferry-registry")); err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	return bin
}

// newCluster starts a registry to which hosts of these names have reported.
func newCluster(t *testing.T, names ...string) *cluster {
	t.Helper()
	c := &cluster{Registry: site.NewRegistry(filepath.Join(lab.TempDir(t), "r"), binaries(t))}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.InitTLS(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Stop()
		if t.Failed() {
			t.Log(site.Tails(c.Log()))
		}
	})
	c.mustStart(t)
	operatorTLS := filepath.Join(c.Dir, "operator")
	if err := c.Issue(t.Context(), operatorTLS, "operator", "ann", "--role", "fence"); err != nil {
		t.Fatal(err)
	}
	c.operator = c.client(t, operatorTLS, "operator", nil)
	c.local = must(client.NewRegistry("unix://" + c.Socket()))(t)
	t.Cleanup(c.local.Close)
	for _, name := range names {
		c.hosts = append(c.hosts, c.newHost(t, name))
	}
	for name, many := range map[string]bool{oneType: false, manyType: true} {
		must(c.operator.CreateType(t.Context(), opID(), api.VolumeTypeCreate{Name: name, Multiattach: many}))(t)
	}
	return c
}

func (c *cluster) mustStart(t *testing.T) {
	t.Helper()
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) newHost(t *testing.T, name string) *host {
	t.Helper()
	h := &host{id: uuid.NewString(), name: name, tls: filepath.Join(c.Dir, "host-"+name)}
	if err := c.Issue(t.Context(), h.tls, "host", name, "--id", h.id); err != nil {
		t.Fatal(err)
	}
	h.daemon = c.of(t, h)
	if err := h.report(t.Context(), h.daemon); err != nil {
		t.Fatal(err)
	}
	return h
}

// client is a client with the certificate in dir, that shows this epoch.
func (c *cluster) client(t *testing.T, dir, kind string, as func() (string, int64)) *client.Registry {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	settings := []client.Setting{client.TLS(at("ca.crt"), at(kind+".crt"), at(kind+".key")), client.Timeout(patience)}
	if as != nil {
		settings = append(settings, client.As(as))
	}
	r := must(client.NewRegistry(c.URL(), settings...))(t)
	t.Cleanup(r.Close)
	return r
}

// of is a client of a host, with the epoch that the host believes in.
func (c *cluster) of(t *testing.T, h *host) *client.Registry {
	t.Helper()
	return c.client(t, h.tls, "host", func() (string, int64) { return h.id, h.epoch.Load() })
}

// describe is what a host says of itself.
func (h *host) describe() api.HostReport {
	return api.HostReport{
		ID: h.id, Name: h.name, BootID: "first", Epoch: h.epoch.Load(), Mark: h.mark.Load(),
		Pools: []api.Pool{{Name: sharedPool, Type: "netfs", Path: "/shared", Shared: true, Multiattach: true, Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 39}},
	}
}

// introduce has every host say what it was told to a registry that was started
// again, which takes no change of it before. A fence is no news here.
func (c *cluster) introduce(ctx context.Context) error {
	for _, h := range c.hosts {
		if _, _, err := insist(ctx, func(ctx context.Context) (api.Host, error) { return h.daemon.Report(ctx, h.describe()) }); err != nil && api.CodeOf(err) != api.CodeStaleEpoch {
			return fmt.Errorf("report of host %s: %w", h.name, err)
		}
	}
	return nil
}

func (c *cluster) mustIntroduce(t *testing.T) {
	t.Helper()
	if err := c.introduce(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// report reports for a host, once, and takes in what it is told.
func (h *host) report(ctx context.Context, r *client.Registry) error {
	answer, err := r.Report(ctx, h.describe())
	if err != nil {
		return fmt.Errorf("report of host %s: %w", h.name, err)
	}
	h.epoch.Store(answer.Epoch)
	h.mark.Store(answer.Mark)
	return nil
}

// volume makes an available volume of a type, found by a host.
func (c *cluster) volume(t *testing.T, by *host, volumeType string) api.Volume {
	t.Helper()
	id := uuid.NewString()
	v, _, err := insist(t.Context(), func(ctx context.Context) (api.Volume, error) {
		return c.local.RegisterVolume(ctx, "register-"+id, api.VolumeRegister{
			ID: id, Name: "v-" + id, Status: api.VolumeAvailable, Type: volumeType, Host: by.id, Location: placeOf(id),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// instance makes a running instance without disks.
func (c *cluster) instance(t *testing.T, at *host) string {
	t.Helper()
	id := uuid.NewString()
	if _, _, err := insist(t.Context(), func(ctx context.Context) (api.Instance, error) {
		return c.local.RegisterInstance(ctx, "adopt-"+id, api.InstanceRegister{ID: id, Name: "i-" + id, Host: at.id, State: api.InstanceRunning})
	}); err != nil {
		t.Fatal(err)
	}
	return id
}

// placeOf is a place in the shared pool that nothing else has.
func placeOf(name string) api.Location {
	return api.Location{Pool: sharedPool, Name: name, Path: "/shared/" + name, Format: api.FormatRaw, SizeBytes: volumeBytes}
}

func opID() string { return uuid.NewString() }

// must returns a value that there has to be.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// insist sends a request, always the same, until the registry answers it. Lost
// says that it was sent before that, and may have been done then.
func insist[T any](ctx context.Context, send func(context.Context) (T, error)) (answer T, lost bool, err error) {
	for {
		answer, err = send(ctx)
		if api.CodeOf(err) != api.CodeRegistryUnavailable {
			return answer, lost, err
		}
		lost = true
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return answer, lost, err
		}
	}
}

// pause lets other things happen for a while.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pause: %w", ctx.Err())
	}
}
