// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// Getter reads the object that ref names, if the viewer may see the object.
type Getter[T any] interface {
	Get(ctx context.Context, ref string, as store.Viewer) (T, error)
}

// Placement finds the host that must answer for an object. It may read every object: check the
// caller's rights before.
type Placement struct {
	Hosts interface {
		KnownHosts
		Get(ctx context.Context, ref string) (api.Host, error)
	}
	Pools interface {
		All(ctx context.Context) ([]api.Pool, error)
	}
	Types interface {
		Get(ctx context.Context, ref string) (api.VolumeType, error)
	}
	Volumes interface {
		// Movers returns the names of the hosts that can move a volume to a pool, best first.
		Movers(ctx context.Context, volumeID, toPool string) ([]string, error)
	}
	Instances   Getter[api.Instance]
	Attachments Getter[api.Attachment]
	Migrations  interface {
		Getter[api.Migration]
		All(ctx context.Context, volumeRef string, all bool, as store.Viewer) ([]api.Migration, error)
	}
	// Present reports whether a host can be asked now.
	Present func(hostID string) bool
}

// PlacementOf returns the Placement for the objects of a registry.
func PlacementOf(s *store.Store, present func(hostID string) bool) Placement {
	return Placement{
		Hosts: s.Hosts, Pools: s.Pools, Types: s.Types, Volumes: s.Volumes, Instances: s.Instances, Attachments: s.Attachments,
		Migrations: s.Migrations, Present: present,
	}
}

var everything = store.Viewer{}

// Host returns the host that ref names. It refuses a fenced host.
func (p Placement) Host(ctx context.Context, ref string) (api.Host, error) {
	h, err := p.Hosts.Get(ctx, ref)
	if err != nil {
		return h, err
	}
	if h.Status == api.HostFenced {
		return h, api.Errorf(api.CodeHypervisorUnavailable, "host %s is fenced: nothing is asked of it until it comes back; nothing was done", h.Name)
	}
	return h, nil
}

// Volume returns the host to ask about a volume: the host of its migration or else of its
// instance, else a host that reaches the volume's bytes.
func (p Placement) Volume(ctx context.Context, v api.Volume) (api.Host, error) {
	names, err := p.hostsOf(ctx, v)
	if err != nil {
		return api.Host{}, err
	}
	return p.First(ctx, names)
}

// VolumeAt returns the host that ref names, which must reach the volume. Without ref it returns
// the result of Volume.
func (p Placement) VolumeAt(ctx context.Context, v api.Volume, ref string) (api.Host, error) {
	if ref == "" {
		return p.Volume(ctx, v)
	}
	h, err := p.Host(ctx, ref)
	if err != nil {
		return h, err
	}
	holders, err := p.hostsOf(ctx, v)
	if err != nil {
		return h, err
	}
	reaching, err := p.reaching(ctx, v)
	if err != nil {
		return h, err
	}
	if all := append(holders, reaching...); !slices.Contains(all, h.Name) {
		return h, api.Errorf(api.CodeNotYourHost, "host %s does not reach volume %s, which is on host %s", h.Name, v.Name, v.Host)
	}
	return h, nil
}

// Mover returns the host that moves a volume to a pool, or to a path if toPool is empty: the host
// of its migration or else of its instance, else a host that reaches both locations.
func (p Placement) Mover(ctx context.Context, v api.Volume, toPool string) (api.Host, error) {
	if v.MigrationID != "" || !v.Unheld() {
		return p.Volume(ctx, v)
	}
	hosts, err := p.Volumes.Movers(ctx, v.ID, toPool)
	if err != nil {
		return api.Host{}, err
	}
	return p.First(ctx, hosts)
}

// Lost returns the host of a volume if that host is fenced and no other host can be asked.
func (p Placement) Lost(ctx context.Context, v api.Volume) (host api.Host, lost bool, err error) {
	names, err := p.hostsOf(ctx, v)
	if err != nil {
		return host, false, err
	}
	for _, name := range names {
		h, err := p.Hosts.Get(ctx, name)
		if err != nil {
			return host, false, err
		}
		if h.Status != api.HostFenced {
			return host, false, nil
		}
		if host.ID == "" {
			host = h
		}
	}
	return host, true, nil
}

func (p Placement) hostsOf(ctx context.Context, v api.Volume) ([]string, error) {
	if v.MigrationID != "" {
		m, err := p.Migrations.Get(ctx, v.MigrationID, everything)
		return []string{m.Host}, err
	}
	names := []string{}
	for _, a := range v.Attachments {
		if a.Host != "" {
			names = append(names, a.Host)
		}
	}
	if len(names) > 0 {
		return names, nil
	}
	return p.reaching(ctx, v)
}

func (p Placement) reaching(ctx context.Context, v api.Volume) ([]string, error) {
	names := []string{v.Host}
	if v.Location.Pool == "" {
		return names, nil
	}
	pools, err := p.Pools.All(ctx)
	if err != nil {
		return nil, err
	}
	same := func(p api.Pool) bool { return p.Name == v.Location.Pool && p.Shared && p.Active }
	if !slices.ContainsFunc(pools, func(p api.Pool) bool { return same(p) && p.Host == v.Host }) {
		return names, nil
	}
	for _, p := range pools {
		if same(p) && p.Host != v.Host {
			names = append(names, p.Host)
		}
	}
	return names, nil
}

// First returns the first of the named hosts that can be asked now. If there is none, it returns
// the first host, for the caller's error. names must not be empty.
func (p Placement) First(ctx context.Context, names []string) (api.Host, error) {
	for _, name := range names {
		if h, err := p.Host(ctx, name); err == nil && p.Present(h.ID) {
			return h, nil
		}
	}
	return p.Host(ctx, names[0])
}

// Attachment returns the host and the id of the attachment that ref names. For an attachment that
// a migration has ended, it returns the migration's host, which has the answer for a repeated
// call.
func (p Placement) Attachment(ctx context.Context, ref string) (h api.Host, id string, err error) {
	a, err := p.Attachments.Get(ctx, ref, everything)
	if err == nil && a.Host == "" {
		h, _, err = p.Instance(ctx, a.InstanceID)
		return h, a.ID, err
	}
	if err == nil {
		h, err = p.Host(ctx, a.Host)
		return h, a.ID, err
	}
	if api.CodeOf(err) != api.CodeNotFound {
		return h, "", err
	}
	all, listErr := p.Migrations.All(ctx, "", true, everything)
	if listErr != nil {
		return h, "", listErr
	}
	for i := range all {
		if all[i].SrcAttachmentID == ref || all[i].DstAttachmentID == ref {
			h, err = p.Host(ctx, all[i].Host)
			return h, ref, err
		}
	}
	return h, "", err
}

// Instance returns the host and the id of the instance that ref names. It refuses an instance
// without a host.
func (p Placement) Instance(ctx context.Context, ref string) (h api.Host, id string, err error) {
	i, err := p.Instances.Get(ctx, ref, everything)
	if err != nil {
		return h, "", err
	}
	if i.Host == "" {
		return h, "", api.Errorf(api.CodeStateForbidden, "instance %s is %s: no host has it; unshelve it first", i.Name, i.State).With("state", i.State)
	}
	h, err = p.Host(ctx, i.Host)
	return h, i.ID, err
}

// Migration returns the host and the id of the migration that ref names.
func (p Placement) Migration(ctx context.Context, ref string) (h api.Host, id string, err error) {
	m, err := p.Migrations.Get(ctx, ref, everything)
	if err != nil {
		return h, "", err
	}
	h, err = p.Host(ctx, m.Host)
	return h, m.ID, err
}

// Create returns the host that makes a volume: the host that ref names, or else the host with the
// most free space in the requested pool or a pool that the type allows.
func (p Placement) Create(ctx context.Context, ref string, in api.VolumeCreate) (api.Host, error) {
	if ref != "" {
		return p.Host(ctx, ref)
	}
	pools, err := p.Pools.All(ctx)
	if err != nil {
		return api.Host{}, err
	}
	if in.Pool != "" {
		return p.roomiest(ctx, pools, func(p api.Pool) bool { return p.Name == in.Pool },
			api.NotFound("pool", in.Pool))
	}
	volumeType, err := p.Types.Get(ctx, cmp.Or(in.Type, defaultType))
	if err != nil {
		return api.Host{}, err
	}
	fits := func(p api.Pool) bool {
		return p.Active && (p.Multiattach || !volumeType.Multiattach) && (len(volumeType.Pools) == 0 || slices.Contains(volumeType.Pools, p.Name))
	}
	return p.roomiest(ctx, pools, fits,
		api.Errorf(api.CodeNoCapablePool, "no host has an active pool for a volume of type %s; nothing was done", volumeType.Name))
}

const defaultType = "default"

// roomiest returns the host with the most free space in a pool that fits accepts, preferably a
// present host.
func (p Placement) roomiest(ctx context.Context, pools []api.Pool, fits func(api.Pool) bool, none error) (api.Host, error) {
	pools = slices.DeleteFunc(slices.Clone(pools), func(p api.Pool) bool { return !fits(p) })
	if len(pools) == 0 {
		return api.Host{}, none
	}
	slices.SortStableFunc(pools, func(a, b api.Pool) int { return cmp.Compare(b.FreeBytes, a.FreeBytes) })
	return p.First(ctx, hostsOf(pools))
}

// Adopt returns the host that registers an image: the host that ref names, else the only host, or
// the only host with the pool.
func (p Placement) Adopt(ctx context.Context, ref, pool string) (api.Host, error) {
	if ref != "" {
		return p.Host(ctx, ref)
	}
	if pool == "" {
		return p.Only(ctx, "")
	}
	pools, err := p.Pools.All(ctx)
	if err != nil {
		return api.Host{}, err
	}
	pools = slices.DeleteFunc(pools, func(p api.Pool) bool { return p.Name != pool })
	if len(pools) == 0 {
		return api.Host{}, api.NotFound("pool", pool)
	}
	// All hosts of a shared pool see the same image.
	if len(pools) == 1 || !slices.ContainsFunc(pools, func(p api.Pool) bool { return !p.Shared }) {
		return p.First(ctx, hostsOf(pools))
	}
	return api.Host{}, severalHosts(hostsOf(pools))
}

// Only returns the host that ref names, or the only host of the site.
func (p Placement) Only(ctx context.Context, ref string) (api.Host, error) {
	if ref != "" {
		return p.Host(ctx, ref)
	}
	hosts, err := p.Hosts.All(ctx)
	if err != nil {
		return api.Host{}, err
	}
	switch len(hosts) {
	case 0:
		return api.Host{}, api.Errorf(api.CodeHypervisorUnavailable, "there is no host: start volferryd on one; nothing was done")
	case 1:
		return p.Host(ctx, hosts[0].ID)
	}
	names := []string{}
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	return api.Host{}, severalHosts(names)
}

func hostsOf(pools []api.Pool) []string {
	names := []string{}
	for _, p := range pools {
		names = append(names, p.Host)
	}
	return names
}

func severalHosts(names []string) error {
	return api.Errorf(api.CodeInvalidArgument, "cannot tell which host is meant: it may be %s; say which host", strings.Join(names, ", ")).
		With("hosts", names)
}
