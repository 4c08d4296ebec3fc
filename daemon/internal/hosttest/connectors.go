// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// Connectors are a host's connectors in memory. They behave as under the unit of `volferryd
// connectors`: a begun verb runs to its end even if its caller gives up or dies, and the volume's
// later verbs, also inspections, wait for that. The storage is the fake hypervisor's: its pools of
// type hv.ConnectorPool, and its targets.
type Connectors struct {
	Fake   *hvtest.Fake
	Images *Images
	// Moments are the runs of programs that change something. A lost answer stands for a program
	// that died.
	Moments *Moments
	// Copies is true if the pools copy between their volumes.
	Copies bool

	mu sync.Mutex
	// newest has a channel for each volume. It is closed when the newest changing verb ends.
	newest map[string]chan struct{}
}

// verbTakes is how long a program runs before it changes something. No other action takes exactly
// this time, so a seed determines the run.
const verbTakes = 1037 * time.Millisecond

// On returns a hypervisor with the connectors' present pools, as a starting daemon makes it.
func (c *Connectors) On(h hv.Hypervisor) *pools.Host {
	host := &pools.Host{Hypervisor: libvirt{h}, Connectors: map[string]string{}, Run: c.run, Look: c.kernel}
	all, err := c.Fake.Pools(context.Background())
	if err != nil {
		panic(err) // nothing is unreachable when a test's daemon starts
	}
	for _, p := range all {
		if p.Type == hv.ConnectorPool {
			host.Connectors[p.Name] = "fake"
		}
	}
	return host
}

type libvirt struct{ hv.Hypervisor }

func (l libvirt) Pools(ctx context.Context) ([]hv.PoolInfo, error) {
	all, err := l.Hypervisor.Pools(ctx)
	return slices.DeleteFunc(all, func(p hv.PoolInfo) bool { return p.Type == hv.ConnectorPool }), err
}

func (l libvirt) VolumeAt(ctx context.Context, at string) (string, error) {
	own, err := l.Pools(ctx)
	if err != nil {
		return "", err
	}
	pool, err := l.Hypervisor.VolumeAt(ctx, at)
	if err == nil && !slices.ContainsFunc(own, func(p hv.PoolInfo) bool { return p.Name == pool }) {
		return "", fmt.Errorf("%w: no pool of libvirt has a volume at %s", hv.ErrNotFound, at)
	}
	return pool, err
}

func (c *Connectors) run(ctx context.Context, pool string, in connector.Request) (out connector.Answer, err error) {
	if in.Verb == connector.VerbInspect {
		return c.finish(ctx, pool, in)
	}
	err = c.Moments.Call(in.Verb, &connector.BrokenError{Verb: in.Verb, Err: errors.New("signal: killed")}, func() (err error) {
		out, err = c.finish(ctx, pool, in)
		return err
	})
	return out, err
}

func (c *Connectors) finish(ctx context.Context, pool string, in connector.Request) (out connector.Answer, err error) {
	if err := ctx.Err(); err != nil {
		return out, &connector.BrokenError{Verb: in.Verb, Err: err}
	}
	before, release := c.turn(pool, in)
	ended := make(chan struct{})
	var done connector.Answer
	var failed error
	go func() {
		defer close(ended)
		defer release()
		<-before
		done, failed = c.handle(context.WithoutCancel(ctx), pool, in)
	}()
	select {
	case <-ended:
		return done, failed
	case <-ctx.Done():
		return out, &connector.BrokenError{Verb: in.Verb, Err: ctx.Err()}
	}
}

// turn gives a verb its turn, as connector.Runner does. before is closed when all earlier changing
// verbs of the volume have ended.
func (c *Connectors) turn(pool string, in connector.Request) (before chan struct{}, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	volume := pool + "/" + in.Volume
	before = c.newest[volume]
	if before == nil {
		before = make(chan struct{})
		close(before)
	}
	if in.Verb == connector.VerbInspect {
		return before, func() {}
	}
	mine := make(chan struct{})
	if c.newest == nil {
		c.newest = map[string]chan struct{}{}
	}
	c.newest[volume] = mine
	return before, func() { close(mine) }
}

func (c *Connectors) handle(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
	p, err := c.pool(ctx, pool)
	if err != nil {
		return connector.Answer{}, said(err)
	}
	if in.Verb != connector.VerbInspect {
		Pass(verbTakes)
	}
	at := path.Join(p.Directory, in.Volume)
	if now, err := c.kernel(at); err == nil && in.Identity != "" && now.Identity != in.Identity {
		return connector.Answer{}, connector.Errorf(connector.CodeChanged, "%s is %s", at, now.Identity)
	}
	switch in.Verb {
	case connector.VerbInspect:
		if in.Volume == "" {
			return connector.Answer{Pool: &p}, nil
		}
	case connector.VerbCreate:
		err = c.create(hv.WithOp(ctx, in.OpID), pool, in)
	case connector.VerbExtend:
		err = c.Fake.ExtendVolume(ctx, pool, in.Volume, in.SizeBytes)
	case connector.VerbDelete:
		return connector.Answer{}, said(c.Fake.DeleteVolume(ctx, pool, in.Volume))
	case connector.VerbConnect:
		err = c.Fake.ConnectDevice(ctx, at)
	case connector.VerbDisconnect:
		return connector.Answer{}, said(c.Fake.DisconnectDevice(ctx, at))
	case connector.VerbCopy:
		src, dst := hv.DeviceCopyEnd{Path: path.Join(p.Directory, in.Source.Volume)}, hv.DeviceCopyEnd{Path: at}
		until, err := c.Fake.CopyDevice(ctx, hv.DeviceCopy{Src: src, Dst: dst}, in.OffsetBytes, in.LengthBytes)
		return connector.Answer{CopiedToBytes: until}, said(err)
	}
	if err != nil {
		return connector.Answer{}, said(err)
	}
	v, err := c.volume(ctx, pool, at)
	return connector.Answer{Volume: v}, said(err)
}

func (c *Connectors) create(ctx context.Context, pool string, in connector.Request) error {
	v, err := c.Fake.LookupVolume(ctx, pool, in.Volume)
	if err == nil && v.OpID == in.OpID && v.CapacityBytes == in.SizeBytes {
		return nil
	}
	if err == nil || errors.Is(err, hv.ErrNotFound) {
		_, err = c.Fake.CreateVolume(ctx, pool, in.Volume, hvtest.Raw, in.SizeBytes, nil)
	}
	return err
}

func (c *Connectors) pool(ctx context.Context, name string) (connector.Pool, error) {
	all, err := c.Fake.Pools(ctx)
	if err != nil {
		return connector.Pool{}, err
	}
	i := slices.IndexFunc(all, func(p hv.PoolInfo) bool { return p.Name == name && p.Active })
	if i < 0 {
		return connector.Pool{}, connector.Errorf(connector.CodeUnavailable, "there is no pool %s", name)
	}
	p := connector.Pool{Directory: all[i].Path, CapacityBytes: all[i].CapacityBytes, FreeBytes: all[i].FreeBytes, GranularityBytes: hvtest.BlockSize, Verbs: []string{connector.VerbInspect}}
	target, err := c.Fake.Connectable(ctx, path.Join(p.Directory, "any"))
	if target {
		p.Verbs = append(p.Verbs, connector.VerbConnect, connector.VerbDisconnect)
	} else {
		p.Verbs = append(p.Verbs, connector.VerbCreate, connector.VerbExtend, connector.VerbDelete)
	}
	if c.Copies {
		p.Verbs = append(p.Verbs, connector.VerbCopy)
	}
	return p, err
}

func (c *Connectors) volume(ctx context.Context, pool, at string) (*connector.Volume, error) {
	v, err := c.Fake.LookupVolume(ctx, pool, path.Base(at))
	if err != nil {
		return nil, err
	}
	now, err := c.kernel(at)
	return &connector.Volume{Name: v.Name, Path: at, SizeBytes: v.CapacityBytes, Identity: now.Identity, OpID: v.OpID}, err
}

func (c *Connectors) kernel(at string) (pools.Device, error) {
	info, err := c.Fake.Info(at)
	if errors.Is(err, fs.ErrNotExist) {
		return pools.Device{}, pools.ErrNoDevice
	}
	if err != nil {
		return pools.Device{}, err
	}
	identity, err := c.Images.Fingerprint(context.Background(), at)
	return pools.Device{SizeBytes: info.SizeBytes, Identity: identity}, err
}

func said(err error) error {
	var own *connector.Error
	switch {
	case err == nil, errors.As(err, &own):
		return err
	case errors.Is(err, hv.ErrNotConnected):
		return connector.Errorf(connector.CodeNotConnected, "%v", err)
	case errors.Is(err, hv.ErrNotFound), errors.Is(err, pools.ErrNoDevice):
		return connector.Errorf(connector.CodeNotFound, "%v", err)
	case errors.Is(err, hv.ErrExists):
		return connector.Errorf(connector.CodeExists, "%v", err)
	case errors.Is(err, hv.ErrInUse):
		return connector.Errorf(connector.CodeInUse, "%v", err)
	case errors.Is(err, hv.ErrUnavailable):
		return connector.Errorf(connector.CodeUnavailable, "%v", err)
	}
	return connector.Errorf(connector.CodeFailed, "%v", err)
}
