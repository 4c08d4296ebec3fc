// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// Make random requests of store and model, and compare answers and states after each. A failure
// prints the seed and the shortest failing sequence.
func TestTheStoreDoesWhatTheModelSays(t *testing.T) {
	dir, runs := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		s, err := Open(t.Context(), filepath.Join(dir, fmt.Sprint(runs, ".db")), store.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		rt.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		m := &machine{t: t, s: s, model: modelSite(t, s)}
		m.begin()
		for range modelRounds {
			rt.Repeat(m.actions())
		}
	})
}

// modelRounds multiplies rapid's number of requests for one site.
const modelRounds = 2

// machine is a store and its model.
type machine struct {
	*model
	t *testing.T
	s *Store
	// n counts the made objects, for ids.
	n int
}

// modelSite makes the same site in a store and in a model.
func modelSite(t *testing.T, s *Store) *model {
	m := &model{
		hosts:       map[string]*modelHost{hostA: {epoch: 1}, hostB: {epoch: 1}},
		instances:   map[string]*modelInstance{web: {host: hostA}, app: {host: hostA}, db: {host: hostB}},
		types:       map[string]*modelType{store.DefaultType: {}, "gold": {multiattach: true}, "thin": {pools: []string{"thin"}}, "shared": {multiattach: true, pools: []string{"nfs"}}},
		policies:    map[string]bool{api.PolicyMultiattach: true, api.PolicyMultiattachBootable: false},
		volumes:     map[string]*modelVolume{},
		attachments: map[string]*modelAttachment{},
		migrations:  map[string]*modelMigration{},
	}
	for _, h := range []string{hostA, hostB} {
		must(s.Reports.Receive(t.Context(), nobody, m.report(h)))(t)
	}
	zero := 0
	for id, i := range m.instances {
		i.state = api.InstanceRunning
		must(s.Instances.Register(t.Context(), nobody, api.InstanceRegister{
			ID: id, Name: id, Host: i.host, State: i.state, Slots: []api.BlockDeviceMapping{{Device: "vda", BootIndex: &zero}},
		}))(t)
	}
	for name, vt := range m.types {
		if name != store.DefaultType {
			must(s.Types.Create(t.Context(), nobody, api.VolumeTypeCreate{Name: name, Multiattach: vt.multiattach, Pools: vt.pools}))(t)
		}
	}
	return m
}

// begin makes the first volumes, and shelves db while both hosts reach its root volume, a state
// that random requests rarely reach.
func (m *machine) begin() {
	for n, v := range []struct{ typeName, host, pool string }{
		{"gold", hostA, "nfs"},
		{"gold", hostA, "fast"},
		{store.DefaultType, hostA, "fast"},
		{store.DefaultType, hostB, "nfs"},
		{"shared", hostB, "nfs"},
	} {
		id := m.fresh(volumeKind)
		place := modelPlace{pool: v.pool, name: fmt.Sprint(n), host: v.host, format: api.FormatRaw}
		must(m.s.Volumes.Register(m.t.Context(), nobody, api.VolumeRegister{
			ID: id, Name: "v-" + id, Status: api.VolumeAvailable, Type: v.typeName, Host: v.host, Location: place.location(),
		}))(m.t)
		if wrong := m.register(id, modelVolume{host: v.host, place: place}, v.typeName); wrong != nil {
			m.t.Fatalf("the model refuses what the site begins with: %q", wrong)
		}
	}
	m.shelveAtFirst(db)
}

// shelveAtFirst shelves and offloads an instance, with volume 3 as its root.
func (m *machine) shelveAtFirst(instance string) {
	in := api.InstanceTransition{From: api.InstanceStopped, To: api.InstanceShelved, Host: m.instances[instance].host, Epoch: 1, OpID: "first", Definition: webDefinition()}
	for _, to := range []api.InstanceState{api.InstanceShelved, api.InstanceShelvedOffloaded} {
		in.To = to
		must(m.s.Shelf.Transition(m.t.Context(), nobody, instance, in))(m.t)
		if wrong := m.transitionInstance(instance, in); wrong != nil {
			m.t.Fatalf("the model refuses what the site begins with: %q", wrong)
		}
		in.From, in.Definition = to, nil
	}
	root := keys(m.volumes)[3]
	a := must(m.s.Shelf.Attach(m.t.Context(), nobody, root, api.VolumeAttach{Instance: instance, Root: true}))(m.t)
	m.add(api.AttachmentReserve{ID: a.ID, VolumeID: root, InstanceID: instance, Device: a.Device, Mode: a.Mode}, a.State)
}

// modelHosts has the names of the hosts.
var modelHosts = map[string]string{hostA: "a", hostB: "b"}

func (m *model) report(host string) api.HostReport {
	report := api.HostReport{ID: host, Name: modelHosts[host], Epoch: m.hosts[host].epoch}
	for _, p := range modelPools {
		report.Pools = append(report.Pools, api.Pool{Name: p, Active: true, Shared: modelShared[p], Multiattach: modelCapable[p]})
	}
	for _, id := range keys(m.instances) {
		if i := m.instances[id]; i.host == host && i.state != "" {
			report.Instances = append(report.Instances, api.InstanceReport{ID: id, State: i.state})
		}
	}
	return report
}

func keys[T any](m map[string]T) []string {
	all := make([]string, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

func (m *machine) fresh(kind string) string {
	m.n++
	return id(kind, 1000+m.n)
}

// agree requires that err is one of the refusals, or nil if there are none.
func agree(rt *rapid.T, what string, err error, want refusals) {
	rt.Helper()
	rt.Logf("%s: %v", what, err)
	if len(want) == 0 && err != nil || len(want) > 0 && !slices.Contains(want, api.CodeOf(err)) {
		rt.Fatalf("%s: %s %v; right would be %q", what, api.CodeOf(err), err, want)
	}
}

// row is a value to compare between store and model.
type row struct{ What, ID, Is string }

func sorted(rows []row) []row {
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.ID, b.ID)) })
	return rows
}

func (m *model) rows() (rows []row) {
	for id, h := range m.hosts {
		rows = append(rows, row{"host", id, fmt.Sprint(h.epoch, h.fenced)})
	}
	for name, on := range m.policies {
		rows = append(rows, row{"policy", name, fmt.Sprint(on)})
	}
	for id, v := range m.volumes {
		status, lock := v.status, ""
		at := m.at(id)
		if len(at) > 0 {
			status = api.VolumeReserved
			if slices.ContainsFunc(at, func(a *modelAttachment) bool { return a.state != api.AttachmentReserved }) {
				status = api.VolumeInUse
			}
		}
		for g, migration := range m.migrations {
			if migration.volume == id && !migration.state.Final() {
				lock = g
			}
		}
		rows = append(rows, row{"volume", id, fmt.Sprint(status, v.typeName, m.types[v.typeName].multiattach, v.bootable, v.generation, v.place.pool, v.place.name, v.place.format, " ", lock)})
	}
	for id, i := range m.instances {
		rows = append(rows, row{"instance", id, fmt.Sprint(i.state, " ", modelHosts[i.holder()], i.locked)})
	}
	for id, a := range m.attachments {
		place := m.volumes[a.volume].place
		if a.migration != "" {
			place = m.migrations[a.migration].to
		}
		rows = append(rows, row{"attachment", id, fmt.Sprint(a.volume, a.instance, modelHosts[m.instances[a.instance].holder()], a.device, a.mode, a.state, place.pool, place.name)})
	}
	for id, g := range m.migrations {
		rows = append(rows, row{"migration", id, fmt.Sprint(g.volume, g.state, cmp.Or(g.before, g.state))})
	}
	return sorted(rows)
}

func (m *machine) stored() (rows []row) {
	for _, h := range must(m.s.Hosts.All(m.t.Context()))(m.t) {
		rows = append(rows, row{"host", h.ID, fmt.Sprint(h.Epoch, h.Status == api.HostFenced)})
	}
	for _, p := range must(m.s.Policies.All(m.t.Context()))(m.t) {
		rows = append(rows, row{"policy", p.Name, fmt.Sprint(p.Enabled)})
	}
	for _, v := range must(m.s.Volumes.All(m.t.Context(), everyone))(m.t) {
		rows = append(rows, row{"volume", v.ID, fmt.Sprint(v.Status, v.Type, v.Multiattach, v.Bootable, v.Generation, v.Location.Pool, v.Location.Name, v.Location.Format, " ", v.MigrationID)})
		for _, a := range v.Attachments {
			rows = append(rows, row{"attachment", a.ID, fmt.Sprint(a.VolumeID, a.InstanceID, a.Host, a.Device, a.Mode, a.State, a.Location.Pool, a.Location.Name)})
		}
	}
	for _, i := range must(m.s.Instances.All(m.t.Context(), everyone))(m.t) {
		rows = append(rows, row{"instance", i.ID, fmt.Sprint(i.State, " ", i.Host, i.Locked)})
	}
	for _, g := range must(m.s.Migrations.All(m.t.Context(), "", true, everyone))(m.t) {
		rows = append(rows, row{"migration", g.ID, fmt.Sprint(g.VolumeID, g.State, g.Phase)})
	}
	return sorted(rows)
}

// check compares the states, and the objects that each host sees with those that it owns.
func (m *machine) check(rt *rapid.T) {
	if diff := gocmp.Diff(m.rows(), m.stored()); diff != "" {
		rt.Fatalf("states differ (-model +store):\n%s", diff)
	}
	for _, host := range keys(m.hosts) {
		var owned, seen []string
		for _, id := range keys(m.volumes) {
			if m.owns(host, id) {
				owned = append(owned, id)
			}
		}
		for _, v := range must(m.s.Volumes.All(m.t.Context(), store.Viewer{HostID: host}))(m.t) {
			seen = append(seen, v.ID)
		}
		for _, id := range keys(m.instances) {
			if m.instances[id].ownedBy(host) {
				owned = append(owned, id)
			}
		}
		for _, i := range must(m.s.Instances.All(m.t.Context(), store.Viewer{HostID: host}))(m.t) {
			seen = append(seen, i.ID)
		}
		slices.Sort(owned)
		slices.Sort(seen)
		if !slices.Equal(owned, seen) {
			rt.Fatalf("host %s sees %q and owns %q", host, seen, owned)
		}
	}
}
