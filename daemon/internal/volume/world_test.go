// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

const (
	testHost = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0006"
	hostName = "alpha"
	testSize = 32 * hvtest.BlockSize
)

// world is a host in memory with its registry. Each call of hypervisor and registry is a possible
// happening.
type world struct {
	*hvtest.Fake
	hv       *hosttest.Hypervisor // Fake, for the daemon
	moments  *hosttest.Moments
	registry *fakeRegistry
	images   *hosttest.Images
	journal  *optest.Journal
	runner   *op.Runner
	// connectors, if set, run the programs of the connectors' pools.
	connectors *hosttest.Connectors
	// left are the images that every volume has left by moves.
	left []string
	// unrecorded refuses volumes about which journal and registry disagree.
	unrecorded error
	// adoptable, if set, refuses images that volumes have left.
	adoptable func(ctx context.Context, path, verdict string) error
	// faultPoint, if set, is called at the points that the ops pass.
	faultPoint func(name string)
}

// newWorld returns a host with a pool of files, a smaller pool of block devices, and no volumes.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Fake: hvtest.New(), moments: &hosttest.Moments{}, registry: newFakeRegistry(), journal: optest.NewJournal()}
	w.hv = &hosttest.Hypervisor{Fake: w.Fake, Moments: w.moments}
	w.registry.Moments = w.moments
	w.images = &hosttest.Images{Fake: w.Fake, Users: map[string]string{}, Writing: map[string]bool{}, Devices: map[string]bool{}}
	w.AddPool(hv.PoolInfo{Name: "files", Type: "dir", Path: "/files", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
	w.AddPool(hv.PoolInfo{Name: "lvm", Type: "logical", Path: "/dev/lvm", Active: true, CapacityBytes: 1 << 39, FreeBytes: 1 << 39})
	return w
}

// addRealPool gives the host a pool "real" with a directory that exists outside the fake.
func (w *world) addRealPool(dir string) {
	w.AddPool(hv.PoolInfo{Name: "real", Type: "dir", Path: dir, Active: true})
}

// cephCluster is a Ceph cluster with images that may be volumes.
const cephCluster = "5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11"

func (w *world) newManager(runner *op.Runner) *Manager {
	host := func(context.Context) (string, error) { return testHost, nil }
	var h hv.Hypervisor = w.hv
	if w.connectors != nil {
		h = w.connectors.On(h)
	}
	ports := Ports{Pools: h, Guests: h, Registry: w.registry, Changes: w.registry, Images: w.images, Files: w.images, Claims: &location.Claims{Site: w.registry, Pools: h.Pools, HostID: testHost, HostName: hostName}}
	ports.Adoptable = w.adoptable
	ports.Recorded = func(context.Context, api.Volume) error { return w.unrecorded }
	ports.Left = func(context.Context, string) ([]string, error) { return w.left, nil }
	rules := location.Rules{AllowedPaths: []string{os.TempDir()}, Storage: w.Fake, RBD: rbd.Clusters{cephCluster: {}}}
	return New(Config{Rules: rules}, ports, runner, w.journal, host, slog.New(slog.DiscardHandler))
}

// start returns a manager with a runner, as in a daemon.
func (w *world) start(t *testing.T) *Manager {
	t.Helper()
	var err error
	w.runner, err = op.New(op.Config{Journal: w.journal, Describe: request.Describe, Context: hv.WithOp, MaxTries: 3, FaultPoint: w.faultPoint})
	must(t, err)
	t.Cleanup(w.runner.Stop)
	return w.newManager(w.runner)
}

// addVolume adds a volume to the registry without an op.
func (w *world) addVolume(name string, l api.Location) api.Volume {
	vol := api.Volume{
		ID: "6f0f7f6e-6c3c-4c39-9a7c-" + fmt.Sprintf("%012d", len(w.registry.volumes)+1), Name: name, Status: api.VolumeAvailable,
		Host: hostName, Location: l, SizeBytes: l.SizeBytes,
	}
	w.registry.volumes[vol.ID] = vol
	return vol
}

// define adds a domain that is off and has one disk at path.
func (w *world) define(t *testing.T, name, path string) {
	t.Helper()
	must(t, w.Define(hv.Domain{ID: "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0001", Name: name, Config: []hv.Disk{{
		Target: "vdb", Device: "disk", Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}}, Terminated: true,
	}}}))
}

var must, wantCode = expect.OK, expect.Code

// fakeRegistry is a registry in memory, with its rules about volumes.
type fakeRegistry struct {
	hosttest.Registry
	volumes map[string]api.Volume
	types   map[string]api.VolumeType
	// migrations are the open migrations.
	migrations []api.Migration
	// eager attaches every volume as soon as it becomes available.
	eager bool
	// refusesIdentity is the answer to a stored identity.
	refusesIdentity error
	// onBegin, if set, is called when a volume is reserved for a resize.
	onBegin func()
}

func newFakeRegistry() *fakeRegistry {
	return &fakeRegistry{
		volumes: map[string]api.Volume{},
		types: map[string]api.VolumeType{
			"default": {Name: "default"},
			"bulk":    {Name: "bulk", Pools: []string{"lvm"}},
			"gone":    {Name: "gone", Pools: []string{"elsewhere"}},
		},
	}
}

// ask makes one request that changes nothing.
func ask[T any](r *fakeRegistry, answer func() (T, error)) (T, error) {
	return hosttest.Ask(&r.Registry, "registry", answer)
}

// change makes a change once per op id.
func (r *fakeRegistry) change(opID string, asked any, change func() (api.Volume, error)) (api.Volume, error) {
	return hosttest.Change(&r.Registry, "registry", opID, asked, change)
}

func (r *fakeRegistry) find(id string) (api.Volume, error) {
	vol, ok := r.volumes[id]
	if !ok {
		return vol, api.Errorf(api.CodeNotFound, "there is no volume %s", id)
	}
	return vol, nil
}

func (r *fakeRegistry) Host(_ context.Context, ref string) (api.Host, error) {
	return ask(r, func() (api.Host, error) {
		if ref != testHost && ref != hostName {
			return api.Host{ID: "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0007", Name: ref}, nil
		}
		return api.Host{ID: testHost, Name: hostName, Epoch: r.Newest(testHost)}, nil
	})
}

func (r *fakeRegistry) Type(_ context.Context, ref string) (api.VolumeType, error) {
	return ask(r, func() (api.VolumeType, error) {
		typ, ok := r.types[ref]
		if !ok {
			return typ, api.Errorf(api.CodeNotFound, "there is no volume type %s", ref)
		}
		return typ, nil
	})
}

func (r *fakeRegistry) Migrations(context.Context, string, bool) ([]api.Migration, error) {
	return r.migrations, nil
}

func (r *fakeRegistry) Volumes(context.Context) ([]api.Volume, error) {
	return ask(r, func() ([]api.Volume, error) {
		return slices.SortedFunc(maps.Values(r.volumes), func(a, b api.Volume) int { return len(a.Name) - len(b.Name) }), nil
	})
}

// EachVolume implements location.Site.
func (r *fakeRegistry) EachVolume(ctx context.Context, do func(*api.Volume) error) error {
	return hosttest.Each(r.Volumes(ctx))(do)
}

// EachOpenMigration implements location.Site.
func (r *fakeRegistry) EachOpenMigration(ctx context.Context, do func(*api.Migration) error) error {
	return hosttest.Each(r.Migrations(ctx, "", false))(do)
}

func (r *fakeRegistry) Volume(_ context.Context, id string) (api.Volume, error) {
	return ask(r, func() (api.Volume, error) { return r.find(id) })
}

func (r *fakeRegistry) RegisterVolume(_ context.Context, opID string, in api.VolumeRegister) (api.Volume, error) {
	return r.change(opID, in, func() (api.Volume, error) {
		for _, v := range r.volumes {
			if v.ID == in.ID || v.Name == in.Name || v.Location.Path == in.Location.Path {
				return api.Volume{}, api.Errorf(api.CodeConflict, "there is a volume %s already", v.Name)
			}
		}
		vol := api.Volume{
			ID: in.ID, Name: in.Name, Status: in.Status, Type: in.Type, Bootable: in.Bootable, Host: hostName,
			Location: in.Location, SizeBytes: in.Location.SizeBytes,
		}
		r.volumes[in.ID] = vol
		return vol, nil
	})
}

func (r *fakeRegistry) GrowVolume(_ context.Context, opID, id string, in api.VolumeGrow) (api.Volume, error) {
	return r.change(opID, in, func() (api.Volume, error) {
		vol, err := r.find(id)
		switch {
		case err != nil || vol.SizeBytes == in.SizeBytes:
			return vol, err
		case vol.SizeBytes != in.FromBytes:
			return vol, api.Errorf(api.CodeConflict, "volume %s has %d bytes", vol.Name, vol.SizeBytes)
		case vol.Location.IsSlice():
			return vol, api.Errorf(api.CodeStateForbidden, "volume %s is the beginning of an image", vol.Name)
		case vol.Status == api.VolumeResizing:
			return vol, api.Errorf(api.CodeVolumeNotAvailable, "volume %s is resizing", vol.Name)
		}
		return r.grown(vol, in.SizeBytes), nil
	})
}

func (r *fakeRegistry) IdentifyVolume(_ context.Context, opID, id string, in api.VolumeIdentify) (api.Volume, error) {
	return r.change(opID, in, func() (api.Volume, error) {
		vol, err := r.find(id)
		switch {
		case r.refusesIdentity != nil:
			return vol, r.refusesIdentity
		case err != nil || vol.Location.Identity == in.Identity:
			return vol, err
		case vol.Location.Identity != "" || vol.Location.Path != in.Path:
			return vol, api.Errorf(api.CodeConflict, "volume %s is %s at %s", vol.Name, vol.Location.Identity, vol.Location.Path)
		}
		vol.Location.Identity = in.Identity
		r.volumes[vol.ID] = vol
		return vol, nil
	})
}

func (r *fakeRegistry) BeginResize(_ context.Context, opID, id string, in api.VolumeResizeBegin) (api.Volume, error) {
	return r.change(opID, in, func() (api.Volume, error) {
		if err := r.CheckEpoch(in.Host, in.Epoch); err != nil {
			return api.Volume{}, err
		}
		vol, err := r.find(id)
		switch {
		case err != nil:
			return vol, err
		case vol.MigrationID != "":
			return vol, api.Errorf(api.CodeMigrationActive, "volume %s is moved", vol.Name)
		case vol.Generation != in.Generation:
			return vol, api.Errorf(api.CodeConflict, "volume %s is not there to be resized", vol.Name)
		}
		vol.ResizeOpID, vol.Status = in.OpID, api.VolumeResizing
		r.volumes[id] = vol
		if r.onBegin != nil {
			r.onBegin()
		}
		return vol, nil
	})
}

func (r *fakeRegistry) EndResize(_ context.Context, opID, id string, in api.VolumeResizeEnd) (api.Volume, error) {
	return r.change(opID, in, func() (api.Volume, error) {
		if err := r.CheckEpoch(in.Host, in.Epoch); err != nil {
			return api.Volume{}, err
		}
		vol, err := r.find(id)
		if err != nil || vol.ResizeOpID != in.OpID {
			return vol, err
		}
		return r.grown(letIn(vol), max(vol.SizeBytes, in.SizeBytes)), nil
	})
}

// letIn ends the reservation of a volume.
func letIn(vol api.Volume) api.Volume {
	vol.ResizeOpID, vol.Status = "", api.VolumeAvailable
	if len(vol.Attachments) > 0 {
		vol.Status = api.VolumeInUse
	}
	return vol
}

// grown stores a volume with a new size. The caller holds the lock.
func (r *fakeRegistry) grown(vol api.Volume, sizeBytes int64) api.Volume {
	vol.SizeBytes, vol.Location.SizeBytes = sizeBytes, sizeBytes
	if vol.Location.ImageBytes <= sizeBytes {
		vol.Location.ImageBytes = 0
	}
	r.volumes[vol.ID] = vol
	return vol
}

// fence fences the host, which loses its ops' reservations and is back at once.
func (r *fakeRegistry) fence() {
	r.With(func() {
		r.NextEpoch(testHost, true)
		for id, vol := range r.volumes {
			if vol.ResizeOpID != "" {
				r.volumes[id] = letIn(vol)
			}
		}
	})
}

func (r *fakeRegistry) TransitionVolume(_ context.Context, opID, id string, t api.VolumeTransition) (api.Volume, error) {
	return r.change(opID, t, func() (api.Volume, error) {
		vol, err := r.find(id)
		if err != nil {
			return vol, err
		}
		if vol.Status != t.From {
			return vol, api.Errorf(api.CodeConflict, "volume %s is %s, no longer %s", vol.Name, vol.Status, t.From)
		}
		vol.Status = t.To
		if t.Location != nil {
			vol.Location = *t.Location
		}
		if r.eager && t.To == api.VolumeAvailable {
			vol.Status = api.VolumeInUse
		}
		r.volumes[id] = vol
		return vol, nil
	})
}

func (r *fakeRegistry) DeleteVolume(_ context.Context, opID, id string) error {
	_, err := r.change(opID, id, func() (api.Volume, error) {
		vol, err := r.find(id)
		delete(r.volumes, id)
		return vol, err
	})
	return err
}
