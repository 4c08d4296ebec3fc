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

// Run runs a verb of the connector of a pool. Errors are as in connector.Runner.
type Run func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error)

// Host is a hypervisor with the pools of connectors in addition to its own.
type Host struct {
	hv.Hypervisor
	// Connectors are the names of the connectors, by pool.
	Connectors map[string]string
	Run        Run
	// Look returns the kernel's device: Look of this package.
	Look func(path string) (Device, error)

	mu    sync.Mutex
	looks map[string]*poolLook
}

const (
	// lookEvery is how long a description of a pool is valid: the report asks every few seconds.
	lookEvery   = 5 * time.Second
	lookTimeout = 3 * time.Second
)

type poolLook struct {
	done  chan struct{}
	began time.Time
	// before is the result of the previous inspection, or nil. It is used until this inspection
	// ends: on a busy host a program may take longer than a list waits.
	before *connector.Pool
	// outdated: the pool was changed since this inspection began. Host.mu guards it.
	outdated bool
	// ended, found and err may be read when done is closed.
	ended time.Time
	found connector.Pool
	err   error
}

// Pools implements hv.Hypervisor. A pool is not active if its connector does not describe it, or
// if libvirt has a pool of the same name, because the name is then ambiguous.
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
			info.Active, info.Path, info.Problem = true, p.Directory, p.Warning
			info.CapacityBytes, info.FreeBytes = p.CapacityBytes, p.FreeBytes
			info.Extends, info.NoCreate = p.Can(connector.VerbExtend), !p.Can(connector.VerbCreate)
		}
		pools = append(pools, info)
	}
	return pools, nil
}

func (l *poolLook) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func (l *poolLook) result() (connector.Pool, error) {
	switch {
	case l.over():
		return l.found, l.err
	case l.before != nil:
		return *l.before, nil
	}
	return connector.Pool{}, fmt.Errorf("it has not said for %s what the pool is", time.Since(l.began).Round(time.Second))
}

// look returns the present inspection of a pool: the running one, a recent one, or a new one. No
// caller's context ends it: other callers wait for it too.
func (h *Host) look(pool string) *poolLook {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &poolLook{done: make(chan struct{}), began: time.Now()}
	if last := h.looks[pool]; last != nil {
		switch {
		case !last.over():
			return last
		case last.err != nil: // it may work by now
		case !last.outdated && time.Since(last.ended) < lookEvery:
			return last
		default:
			l.before = &last.found
		}
	}
	if h.looks == nil {
		h.looks = map[string]*poolLook{}
	}
	h.looks[pool] = l
	go func() {
		defer close(l.done)
		ctx, cancel := context.WithTimeout(context.Background(), connector.RunTimeout(connector.VerbInspect))
		defer cancel()
		l.found, l.err = h.inspectPool(ctx, pool)
		l.ended = time.Now()
	}()
	return l
}

// changed makes the next list of the pools inspect the pool again.
func (h *Host) changed(pool string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.looks[pool]; l != nil {
		l.outdated = true
	}
}

func (h *Host) inspectPool(ctx context.Context, pool string) (connector.Pool, error) {
	out, err := h.Run(ctx, pool, connector.Request{Verb: connector.VerbInspect})
	if err != nil {
		return connector.Pool{}, err
	}
	return *out.Pool, CheckPool(*out.Pool)
}

func (h *Host) has(pool string) bool { return h.Connectors[pool] != "" }

func (h *Host) inspect(ctx context.Context, pool string) (connector.Pool, error) {
	p, err := h.inspectPool(ctx, pool)
	return p, h.refusal(pool, "look at the pool", err)
}

func (h *Host) known(ctx context.Context, pool string) (connector.Pool, error) {
	l := h.look(pool)
	if l.before == nil {
		select {
		case <-l.done:
		case <-ctx.Done():
			return connector.Pool{}, h.refusal(pool, "look at the pool", ctx.Err())
		}
	}
	p, err := l.result()
	return p, h.refusal(pool, "look at the pool", err)
}

func (h *Host) refusal(pool, what string, err error) error {
	if err == nil {
		return nil
	}
	text := fmt.Sprintf("pool %s: connector %s cannot %s: %v", pool, h.Connectors[pool], what, err)
	if errors.Is(err, context.DeadlineExceeded) {
		text = fmt.Sprintf("pool %s: connector %s was to %s, and has not answered in the time that there was for it; try again", pool, h.Connectors[pool], what)
	}
	switch connector.CodeOf(err) {
	case connector.CodeNotConnected:
		return fmt.Errorf("%w: %s", hv.ErrNotConnected, text)
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

func (h *Host) untrue(pool string, err error) error {
	return api.Errorf(api.CodeChainChanged, "pool %s: what connector %s says is not so: %v; nothing is done with that volume before it is mended (volferryd connector-test says more)", pool, h.Connectors[pool], err)
}

// RoundedBytes implements hv.Hypervisor.
func (h *Host) RoundedBytes(ctx context.Context, pool string, sizeBytes int64) (int64, error) {
	if !h.has(pool) {
		return h.Hypervisor.RoundedBytes(ctx, pool, sizeBytes)
	}
	p, err := h.known(ctx, pool)
	if err != nil {
		return 0, err
	}
	if !p.Can(connector.VerbCreate) {
		return 0, api.Errorf(api.CodeInvalidArgument, "pool %s makes no volumes: it has those of its target; name one of them by its path, %s/NAME (volferryctl volume migrate --to-path)", pool, p.Directory)
	}
	return (sizeBytes + p.GranularityBytes - 1) / p.GranularityBytes * p.GranularityBytes, nil
}

// CreateVolume implements hv.Hypervisor. The connector records the context's op with the volume.
func (h *Host) CreateVolume(ctx context.Context, pool, name, format string, sizeBytes int64, backing []hv.Image) (*hv.PoolVolume, error) {
	if !h.has(pool) {
		return h.Hypervisor.CreateVolume(ctx, pool, name, format, sizeBytes, backing)
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

// volume checks the device against the connector's answer, and converts the answer. An inactive
// volume has no device, which is an error only if must is true.
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
	f, err := h.find(ctx, pool, name)
	return f.volume, err
}

type found struct {
	volume   *hv.PoolVolume
	identity string
	in       connector.Pool
}

// find looks up a volume. It returns ErrNotFound only if the pool is available.
func (h *Host) find(ctx context.Context, pool, name string) (found, error) {
	if connector.CheckVolumeName(name) != nil {
		return found{}, fmt.Errorf("%w: pool %s has no volume of that name", hv.ErrNotFound, pool)
	}
	p, err := h.known(ctx, pool)
	if err != nil {
		return found{}, noAbsence(err)
	}
	f, err := h.findIn(ctx, pool, p, name)
	if errors.Is(err, hv.ErrNotFound) {
		if _, poolErr := h.inspect(ctx, pool); poolErr != nil {
			err = noAbsence(poolErr)
		}
	}
	return f, err
}

func (h *Host) findIn(ctx context.Context, pool string, p connector.Pool, name string) (found, error) {
	out, err := h.Run(ctx, pool, connector.Request{Verb: connector.VerbInspect, Volume: name})
	if err != nil {
		return found{}, h.refusal(pool, "look up volume "+name, err)
	}
	v, err := h.volume(pool, p, name, *out.Volume, false)
	return found{v, out.Volume.Identity, p}, err
}

// noAbsence prevents an absent pool from counting as an absent volume.
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

// DeleteVolume implements hv.Hypervisor. It deletes the device that it looks up now, and no other
// device that gets its name meanwhile.
func (h *Host) DeleteVolume(ctx context.Context, pool, name string) error {
	if !h.has(pool) {
		return h.Hypervisor.DeleteVolume(ctx, pool, name)
	}
	if p, err := h.known(ctx, pool); err == nil && !p.Can(connector.VerbDelete) { // connected or not
		return api.Errorf(api.CodeInvalidArgument, "pool %s deletes no volumes: its target makes and removes them; `volferryctl volume forget` leaves the image of a volume where it is", pool)
	}
	was, err := h.find(ctx, pool, name)
	if errors.Is(err, hv.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.changed(pool)
	if _, err := h.Run(ctx, pool, connector.Request{Verb: connector.VerbDelete, OpID: opOf(ctx), Volume: name, Identity: was.identity}); err != nil {
		return h.refusal(pool, "delete volume "+name, err)
	}
	left, err := h.findIn(ctx, pool, was.in, name)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		return nil
	case err == nil && left.identity == was.identity:
		err = h.untrue(pool, fmt.Errorf("it says that it has deleted %s, which is there", name))
	}
	return err
}

// ExtendVolume implements hv.Hypervisor.
func (h *Host) ExtendVolume(ctx context.Context, pool, name string, sizeBytes int64) error {
	if !h.has(pool) {
		return h.Hypervisor.ExtendVolume(ctx, pool, name, sizeBytes)
	}
	was, err := h.find(ctx, pool, name)
	if err != nil {
		return err
	}
	defer h.changed(pool)
	if _, err := h.Run(ctx, pool, connector.Request{Verb: connector.VerbExtend, OpID: opOf(ctx), Volume: name, SizeBytes: sizeBytes, Identity: was.identity}); err != nil {
		return h.refusal(pool, "extend volume "+name, err)
	}
	now, err := h.findIn(ctx, pool, was.in, name)
	switch {
	case err != nil:
		return err
	case now.identity != was.identity || now.volume.CapacityBytes != sizeBytes:
		return h.untrue(pool, fmt.Errorf("it says that it has extended %s to %d bytes, and there are %d (%s)", name, sizeBytes, now.volume.CapacityBytes, now.identity))
	}
	return nil
}

const noOp = "none"

func opOf(ctx context.Context) string {
	if id := hv.OpOf(ctx); id != "" {
		return id
	}
	return noOp
}
