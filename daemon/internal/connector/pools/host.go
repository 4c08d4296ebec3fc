// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Run runs a verb of the connector of a pool. Errors are those of connector.Runner.
type Run func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error)

// Host is a hypervisor with the pools of connectors beside its own.
type Host struct {
	hv.Hypervisor
	// Connectors are the names of the connectors, by pool.
	Connectors map[string]string
	Run        Run
	// Look asks the kernel for a device: Look of this package.
	Look func(path string) (Device, error)

	mu    sync.Mutex
	looks map[string]*poolLook
}

const (
	// lookEvery is how old what is known of a pool may be: the report asks every few seconds.
	lookEvery = 5 * time.Second
	// lookTimeout is how long a list of the pools waits for one that does not answer.
	lookTimeout = 3 * time.Second
)

// poolLook is one inspection of a pool.
type poolLook struct {
	done  chan struct{}
	began time.Time
	// found and err may be read when done is closed.
	found connector.Pool
	err   error
}

// Pools implements hv.Hypervisor. A pool whose connector does not say what it is is not active.
// One that libvirt has by the same name is nobody's: which one is meant cannot be known.
func (h *Host) Pools(ctx context.Context) ([]hv.PoolInfo, error) {
	pools, err := h.Hypervisor.Pools(ctx)
	if err != nil || len(h.Connectors) == 0 {
		return pools, err
	}
	looks := map[string]*poolLook{}
	for name := range h.Connectors {
		looks[name] = h.look(name)
	}
	timeout := time.NewTimer(lookTimeout)
	defer timeout.Stop()
	over := false
	for _, name := range slices.Sorted(maps.Keys(h.Connectors)) {
		both := slices.ContainsFunc(pools, func(p hv.PoolInfo) bool { return p.Name == name })
		pools = slices.DeleteFunc(pools, func(p hv.PoolInfo) bool { return p.Name == name })
		info := hv.PoolInfo{Name: name, Type: hv.ConnectorPool}
		if !over {
			select {
			case <-looks[name].done:
			case <-timeout.C:
				over = true
			case <-ctx.Done():
				return nil, fmt.Errorf("list pools: %w", ctx.Err())
			}
		}
		switch p, err := looks[name].result(); {
		case both:
			info.Problem = "libvirt has a pool of this name too; give one of them another name"
		case err != nil:
			info.Problem = fmt.Sprintf("connector %s: %v", h.Connectors[name], err)
		default:
			info.Active, info.Path = true, p.Directory
			info.CapacityBytes, info.FreeBytes, info.Extends = p.CapacityBytes, p.FreeBytes, p.Can(connector.VerbExtend)
		}
		pools = append(pools, info)
	}
	return pools, nil
}

// result is what an inspection has found, an error if it is not over.
func (l *poolLook) result() (connector.Pool, error) {
	select {
	case <-l.done:
		return l.found, l.err
	default:
		return connector.Pool{}, fmt.Errorf("it has not said for %s what the pool is", time.Since(l.began).Round(time.Second))
	}
}

// look is the present inspection of a pool: the one that is going on, one that is new enough,
// or another one. It is nobody's context that ends it: others wait for it too.
func (h *Host) look(pool string) *poolLook {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.looks[pool]; l != nil {
		select {
		case <-l.done:
			if time.Since(l.began) < lookEvery {
				return l
			}
		default:
			return l
		}
	}
	l := &poolLook{done: make(chan struct{}), began: time.Now()}
	if h.looks == nil {
		h.looks = map[string]*poolLook{}
	}
	h.looks[pool] = l
	go func() {
		defer close(l.done)
		ctx, cancel := context.WithTimeout(context.Background(), connector.RunTimeout(connector.VerbInspect))
		defer cancel()
		l.found, l.err = h.inspectPool(ctx, pool)
	}()
	return l
}

// changed has the next list of the pools ask again.
func (h *Host) changed(pool string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.looks, pool)
}

func (h *Host) inspectPool(ctx context.Context, pool string) (connector.Pool, error) {
	out, err := h.Run(ctx, pool, connector.Request{Verb: connector.VerbInspect})
	if err != nil {
		return connector.Pool{}, err
	}
	return *out.Pool, CheckPool(*out.Pool)
}

// has says whether a pool is a connector's.
func (h *Host) has(pool string) bool { return h.Connectors[pool] != "" }

// inspect looks at a pool, and says in the words of the caller if that fails.
func (h *Host) inspect(ctx context.Context, pool string) (connector.Pool, error) {
	p, err := h.inspectPool(ctx, pool)
	return p, h.refusal(pool, "look at the pool", err)
}

// refusal gives an error of a connector the type that callers of a hypervisor branch on.
func (h *Host) refusal(pool, what string, err error) error {
	if err == nil {
		return nil
	}
	text := fmt.Sprintf("pool %s: connector %s cannot %s: %v", pool, h.Connectors[pool], what, err)
	switch connector.CodeOf(err) {
	case connector.CodeNotFound:
		return fmt.Errorf("%w: %s", hv.ErrNotFound, text)
	case connector.CodeExists:
		return fmt.Errorf("%w: %s", hv.ErrExists, text)
	case connector.CodeInUse:
		return fmt.Errorf("%w: %s", hv.ErrInUse, text)
	case connector.CodeBusy:
		return fmt.Errorf("%w: %s", hv.ErrBusy, text)
	case connector.CodeUnsupported:
		return fmt.Errorf("%w: %s", hv.ErrUnsupported, text)
	case connector.CodeInvalid:
		return api.Errorf(api.CodeInvalidArgument, "%s", text)
	case connector.CodeChanged:
		return api.Errorf(api.CodeConflict, "%s", text)
	case connector.CodeNoSpace:
		return api.Errorf(api.CodeNoSpace, "%s", text)
	}
	return api.Errorf(api.CodeHypervisorUnavailable, "%s", text)
}

// untrue is the refusal of what a connector says and the kernel does not.
func (h *Host) untrue(pool string, err error) error {
	return api.Errorf(api.CodeChainChanged, "pool %s: what connector %s says is not so: %v; nothing is done with that volume before it is mended (volferryd connector-test says more)", pool, h.Connectors[pool], err)
}

// RoundedBytes implements hv.Hypervisor.
func (h *Host) RoundedBytes(ctx context.Context, pool string, sizeBytes int64) (int64, error) {
	if !h.has(pool) {
		return h.Hypervisor.RoundedBytes(ctx, pool, sizeBytes)
	}
	p, err := h.inspect(ctx, pool)
	if err != nil {
		return 0, err
	}
	return (sizeBytes + p.GranularityBytes - 1) / p.GranularityBytes * p.GranularityBytes, nil
}

// CreateVolume implements hv.Hypervisor. The connector keeps the op of the context at the volume.
func (h *Host) CreateVolume(ctx context.Context, pool, name, format string, sizeBytes int64) (*hv.PoolVolume, error) {
	if !h.has(pool) {
		return h.Hypervisor.CreateVolume(ctx, pool, name, format, sizeBytes)
	}
	if err := connector.CheckVolumeName(name); err != nil {
		return nil, api.Errorf(api.CodeInvalidArgument, "pool %s: %v; choose another name for the volume", pool, err)
	}
	p, err := h.inspect(ctx, pool)
	if err != nil {
		return nil, err
	}
	defer h.changed(pool)
	out, err := h.Run(ctx, pool, connector.Request{Verb: connector.VerbCreate, OpID: hv.OpOf(ctx), Volume: name, SizeBytes: sizeBytes})
	if err != nil {
		return nil, h.refusal(pool, "create volume "+name, err)
	}
	v, err := h.volume(pool, p, name, *out.Volume, true)
	switch {
	case err != nil:
		return nil, err
	case v.CapacityBytes != sizeBytes:
		return nil, h.untrue(pool, fmt.Errorf("it was to make %s of %d bytes, and has made %d", name, sizeBytes, v.CapacityBytes))
	case v.OpID != hv.OpOf(ctx):
		return nil, h.untrue(pool, fmt.Errorf("it says that op %.60q has made %s, and it was op %s", v.OpID, name, hv.OpOf(ctx)))
	}
	return v, nil
}

// volume is a volume that the kernel has as the connector says. One whose device is not there,
// because nothing has activated it, is what the connector says, unless it must be there.
func (h *Host) volume(pool string, p connector.Pool, name string, said connector.Volume, must bool) (*hv.PoolVolume, error) {
	_, err := Check(h.Look, p.Directory, name, said)
	if err != nil && (must || !errors.Is(err, ErrNoDevice)) {
		return nil, h.untrue(pool, err)
	}
	return &hv.PoolVolume{Name: name, Path: said.Path, Format: string(api.FormatRaw), CapacityBytes: said.SizeBytes, Block: true, OpID: said.OpID}, nil
}

// LookupVolume implements hv.Hypervisor.
func (h *Host) LookupVolume(ctx context.Context, pool, name string) (*hv.PoolVolume, error) {
	if !h.has(pool) {
		return h.Hypervisor.LookupVolume(ctx, pool, name)
	}
	v, _, err := h.find(ctx, pool, name)
	return v, err
}

// find looks a volume up, and returns besides which device it is.
func (h *Host) find(ctx context.Context, pool, name string) (v *hv.PoolVolume, identity string, err error) {
	if connector.CheckVolumeName(name) != nil {
		return nil, "", fmt.Errorf("%w: pool %s has no volume of that name", hv.ErrNotFound, pool)
	}
	p, err := h.inspect(ctx, pool)
	if err != nil {
		return nil, "", noAbsence(err)
	}
	out, err := h.Run(ctx, pool, connector.Request{Verb: connector.VerbInspect, Volume: name})
	if err != nil {
		return nil, "", h.refusal(pool, "look up volume "+name, err)
	}
	v, err = h.volume(pool, p, name, *out.Volume, false)
	return v, out.Volume.Identity, err
}

// noAbsence keeps a pool that is not found from being taken for a volume that is not.
func noAbsence(err error) error {
	if errors.Is(err, hv.ErrNotFound) {
		return api.Errorf(api.CodeHypervisorUnavailable, "%v", err)
	}
	return err
}

// VolumeAt implements hv.Hypervisor.
func (h *Host) VolumeAt(ctx context.Context, path string) (string, error) {
	pool, err := h.Hypervisor.VolumeAt(ctx, path)
	if !errors.Is(err, hv.ErrNotFound) || len(h.Connectors) == 0 || !strings.HasPrefix(path, "/dev/") {
		return pool, err
	}
	pools, listErr := h.Pools(ctx)
	if listErr != nil {
		return "", listErr
	}
	for _, p := range pools {
		if !h.has(p.Name) || !p.Active || p.Path != filepath.Dir(path) {
			continue
		}
		_, lookErr := h.LookupVolume(ctx, p.Name, filepath.Base(path))
		if lookErr == nil {
			return p.Name, nil
		}
		if !errors.Is(lookErr, hv.ErrNotFound) {
			return "", lookErr
		}
	}
	return "", err
}

// DeleteVolume implements hv.Hypervisor: the device that is looked up now is deleted, and no
// other one that gets its name meanwhile.
func (h *Host) DeleteVolume(ctx context.Context, pool, name string) error {
	if !h.has(pool) {
		return h.Hypervisor.DeleteVolume(ctx, pool, name)
	}
	_, identity, err := h.find(ctx, pool, name)
	if errors.Is(err, hv.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.changed(pool)
	if _, err := h.Run(ctx, pool, connector.Request{Verb: connector.VerbDelete, OpID: opOf(ctx), Volume: name, Identity: identity}); err != nil {
		return h.refusal(pool, "delete volume "+name, err)
	}
	_, left, err := h.find(ctx, pool, name)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		return nil
	case err == nil && left == identity:
		err = h.untrue(pool, fmt.Errorf("it says that it has deleted %s, which is there", name))
	}
	return err
}

// ExtendVolume implements hv.Hypervisor.
func (h *Host) ExtendVolume(ctx context.Context, pool, name string, sizeBytes int64) error {
	if !h.has(pool) {
		return h.Hypervisor.ExtendVolume(ctx, pool, name, sizeBytes)
	}
	_, identity, err := h.find(ctx, pool, name)
	if err != nil {
		return err
	}
	defer h.changed(pool)
	if _, err := h.Run(ctx, pool, connector.Request{Verb: connector.VerbExtend, OpID: opOf(ctx), Volume: name, SizeBytes: sizeBytes, Identity: identity}); err != nil {
		return h.refusal(pool, "extend volume "+name, err)
	}
	v, now, err := h.find(ctx, pool, name)
	switch {
	case err != nil:
		return err
	case now != identity || v.CapacityBytes != sizeBytes:
		return h.untrue(pool, fmt.Errorf("it says that it has extended %s to %d bytes, and there are %d (%s)", name, sizeBytes, v.CapacityBytes, now))
	}
	return nil
}

// noOp stands for the op of what no op asks for.
const noOp = "none"

func opOf(ctx context.Context) string {
	if id := hv.OpOf(ctx); id != "" {
		return id
	}
	return noOp
}
