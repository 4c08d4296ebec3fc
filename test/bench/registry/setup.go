// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/bench/load"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// disksPerInstance are those of the instances that fill a site.
const disksPerInstance = 10

// fillers are how many connections fill a site.
const fillers = 32

// bench is a registry, hosts that it knows, and a client for each volume that is
// attached and detached.
type bench struct {
	options

	dir       string
	registry  *site.Registry
	metrics   string // address
	authority *authority
	random    *rand.Rand
	hosts     []*host
	clients   []*client
	hearts    []*heart
	pulse     *pulse
	version   string // of the registry
	filled    int    // attachments that a step has added
}

// setUp starts a registry with its state below dir. Close must be called.
func setUp(ctx context.Context, dir string, o options) (*bench, error) {
	b := &bench{options: o, dir: dir, registry: site.NewRegistry(filepath.Join(dir, "registry"), o.bin), random: rand.New(rand.NewPCG(o.seed, 0))}
	if err := b.start(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) start(ctx context.Context) error {
	if err := b.registry.InitTLS(ctx); err != nil {
		return err
	}
	var err error
	if b.metrics, err = lab.FreeAddress(ctx); err != nil {
		return err
	}
	b.registry.Flags = []string{"--metrics-listen", b.metrics}
	if err := b.registry.Start(ctx); err != nil {
		return err
	}
	version, err := b.registry.Run(ctx, "--version")
	if err != nil {
		return err
	}
	b.version = strings.TrimSpace(version)
	if b.authority, err = loadAuthority(b.registry.TLSDir()); err != nil {
		return err
	}
	for i := range load.Hosts(b.options.clients) {
		h, err := newHost(b.authority, newID(b.random), fmt.Sprintf("load%d", i))
		if err != nil {
			return err
		}
		b.hosts = append(b.hosts, h)
	}
	if err := b.introduce(ctx); err != nil {
		return err
	}
	return b.makeClients(ctx)
}

// introduce has every host of the load report, which a registry that was just
// started wants before it takes changes of it.
func (b *bench) introduce(ctx context.Context) error {
	for _, h := range b.hosts {
		c, err := dial(ctx, b.registry.Listen, h)
		if err != nil {
			return err
		}
		_, err = c.post("/v1/hosts/"+h.id+"/report", "", reportOf(h, nil))
		c.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// connectHosts connects the hosts and has each report once, which is stored.
func (b *bench) connectHosts(ctx context.Context) ([]*heart, error) {
	hearts, counts := make([]*heart, b.options.hosts), &sent{}
	for i := range hearts {
		h, err := newHost(b.authority, newID(b.random), fmt.Sprintf("host%d", i))
		if err != nil {
			return nil, err
		}
		var instances []api.InstanceReport
		for range instancesPerHost {
			instances = append(instances, api.InstanceReport{ID: newID(b.random), State: api.InstanceRunning})
		}
		report := reportOf(h, instances)
		hearts[i] = &heart{
			conn: &conn{host: h}, path: "/v1/hosts/" + h.id + "/report", whole: report[:len(report)-1], sent: counts, every: wholeEvery,
			brief: fmt.Appendf(nil, `{"id":%q,"name":%q,"version":"","boot_id":"","epoch":1,"pools":null,"instances":null`, h.id, h.name),
		}
	}
	return hearts, inParallel(heartbeaters, func(first int) error {
		for i := first; i < len(hearts); i += heartbeaters {
			c, err := dial(ctx, b.registry.Listen, hearts[i].host)
			if err != nil {
				return err
			}
			hearts[i].conn = c
			if err := hearts[i].beat(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) close() {
	b.disconnect()
	if b.pulse != nil {
		if err := b.pulse.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "a host has failed:", err)
		}
	} else {
		for _, h := range b.hearts {
			h.close()
		}
	}
	b.registry.Stop()
}

// makeClients makes the clients, each with a volume and an instance.
func (b *bench) makeClients(ctx context.Context) error {
	for i := range b.options.clients {
		b.clients = append(b.clients, &client{
			conn: &conn{host: b.hosts[i%len(b.hosts)]}, volume: newID(b.random), instance: newID(b.random), device: "vdb",
			random: rand.New(rand.NewPCG(b.seed, uint64(i)+1)),
		})
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	return inParallel(len(b.clients), func(i int) error {
		c := b.clients[i]
		return errors.Join(
			send(c.conn, "/v1/volumes:register", api.VolumeRegister{
				ID: c.volume, Name: fmt.Sprintf("volume%d", i), Status: api.VolumeAvailable, Type: "default", Host: c.host.id, Location: locationOf(fmt.Sprintf("volume%d", i)),
			}),
			send(c.conn, "/v1/instances:register", api.InstanceRegister{
				ID: c.instance, Name: fmt.Sprintf("instance%d", i), Host: c.host.id, State: api.InstanceRunning,
			}),
		)
	})
}

// connect gives every client a connection.
func (b *bench) connect(ctx context.Context) error {
	for _, c := range b.clients {
		connected, err := dial(ctx, b.registry.Listen, c.host)
		if err != nil {
			return err
		}
		c.conn = connected
	}
	return nil
}

func (b *bench) disconnect() {
	for _, c := range b.clients {
		c.close()
	}
}

// fill adds instances with disks until the site has so many attachments.
func (b *bench) fill(ctx context.Context, attachments int) error {
	instances := make([]api.InstanceRegister, attachments/disksPerInstance)
	for n := range instances {
		h := b.hosts[n%len(b.hosts)]
		in := api.InstanceRegister{ID: newID(b.random), Name: fmt.Sprintf("full%d", n), Host: h.id, State: api.InstanceRunning}
		for d := range disksPerInstance {
			name := fmt.Sprintf("full%d-%d", n, d)
			in.Disks = append(in.Disks, api.AdoptedDisk{
				VolumeID: newID(b.random), VolumeName: name, AttachmentID: newID(b.random),
				Device: "vd" + string(rune('a'+d)), Mode: api.ModeRW, Location: locationOf(name),
			})
		}
		instances[n] = in
	}
	conns := make([]*conn, fillers)
	for i := range conns {
		c, err := dial(ctx, b.registry.Listen, b.hosts[i%len(b.hosts)])
		if err != nil {
			return err
		}
		defer c.close()
		conns[i] = c
	}
	return inParallel(fillers, func(i int) error {
		for n := i; n < len(instances); n += fillers {
			if err := send(conns[i], "/v1/instances:register", instances[n]); err != nil {
				return err
			}
		}
		return nil
	})
}

func locationOf(name string) api.Location {
	pool := poolNames[0]
	return api.Location{Pool: pool, Name: name, Path: "/dev/" + pool + "/" + name, Format: api.FormatRaw, SizeBytes: 1 << 30}
}

func send(c *conn, path string, in any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	_, err = c.post(path, "", body)
	return err
}
