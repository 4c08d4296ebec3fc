// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// model describes the registry by maps and rules, without SQL, transactions or an order of checks.
// For every request it returns the correct refusals; none means that the request must succeed.
type model struct {
	hosts       map[string]*modelHost
	instances   map[string]*modelInstance
	types       map[string]*modelType
	policies    map[string]bool
	volumes     map[string]*modelVolume
	attachments map[string]*modelAttachment
	migrations  map[string]*modelMigration
}

type modelHost struct {
	epoch  int64
	fenced bool
}

// modelInstance has an empty root slot vda at the start.
type modelInstance struct {
	host   string // its host, or its last one
	state  api.InstanceState
	locked bool
	op     string // the last op that shelved or unshelved it
	// The shelf: the host that an operator asked, the op that claimed the instance, and its host
	// before.
	asked, claimOp, fromHost string
	// runsOn is a host that last reported it as running without having it.
	runsOn string
}

type modelType struct {
	multiattach bool
	pools       []string
}

type modelVolume struct {
	status     api.VolumeStatus // creating, available, deleting or error
	typeName   string
	bootable   bool
	generation int64
	host       string
	place      modelPlace
}

type modelPlace struct {
	pool, name, host string
	format           api.Format
}

type modelAttachment struct {
	volume, instance, device string
	mode                     api.Mode
	state                    api.AttachmentState
	migration                string
}

type modelMigration struct {
	volume, host, src, dst, toType string
	to                             modelPlace
	state, before                  api.MigrationState
}

// The pools, the same on each host.
var (
	modelShared  = map[string]bool{"nfs": true}
	modelCapable = map[string]bool{"fast": true, "nfs": true}
	modelPools   = []string{"fast", "thin", "nfs"}
)

// refusals are the correct codes for a request.
type refusals []api.Code

func (r *refusals) when(wrong bool, code api.Code) {
	if wrong {
		*r = append(*r, code)
	}
}

func (p modelPlace) same(q modelPlace) bool {
	return p.pool == q.pool && p.name == q.name && (modelShared[p.pool] || p.host == q.host)
}

func (m *model) taken(p modelPlace) bool {
	for _, v := range m.volumes {
		if v.place.same(p) {
			return true
		}
	}
	for _, g := range m.migrations {
		if !g.state.Final() && g.to.same(p) {
			return true
		}
	}
	return false
}

// at returns the attachments of a volume, except the dst of a migration.
func (m *model) at(volume string) (found []*modelAttachment) {
	for _, a := range m.attachments {
		if a.volume == volume && a.migration == "" {
			found = append(found, a)
		}
	}
	return found
}

func (m *model) lock(volume string) *modelMigration {
	for _, g := range m.migrations {
		if g.volume == volume && !g.state.Final() {
			return g
		}
	}
	return nil
}

// reaches reports whether the bytes are on the host or in a shared pool.
func (m *model) reaches(host, volume string) bool {
	v := m.volumes[volume]
	return v.place.host == host || modelShared[v.place.pool]
}

func (m *model) owns(host, volume string) bool {
	if m.volumes[volume].host == host || m.reaches(host, volume) && modelShared[m.volumes[volume].place.pool] {
		return true
	}
	return slices.ContainsFunc(m.at(volume), func(a *modelAttachment) bool { return m.instances[a.instance].host == host })
}

// reported records the instances that run on a host and are not its own.
func (m *model) reported(in api.HostReport) {
	for _, i := range m.instances {
		if i.runsOn == in.ID {
			i.runsOn = ""
		}
	}
	for _, said := range in.Instances {
		i := m.instances[said.ID]
		if (said.State == api.InstanceRunning || said.State == api.InstancePaused) && i.holder() != in.ID {
			i.runsOn = in.ID
		}
	}
}

// splitBrain has the rule for changes of an instance: it must not run on another host than own.
func (m *model) splitBrain(r *refusals, instance, own string) {
	other := m.instances[instance].runsOn
	r.when(other != "" && other != own && !m.hosts[other].fenced, api.CodeStateForbidden)
}

func (m *model) token(r *refusals, host string, epoch int64) {
	h := m.hosts[host]
	r.when(h.fenced || h.epoch != epoch, api.CodeStaleEpoch)
}

// suits has the rules for a volume that gets a type.
func (m *model) suits(r *refusals, t *modelType, format api.Format, bootable bool) {
	if !t.multiattach {
		return
	}
	r.when(format != api.FormatRaw, api.CodeUnsupportedDisk)
	m.allowed(r, bootable)
	r.when(!slices.ContainsFunc(modelPools, func(p string) bool { return modelCapable[p] && t.allows(p) }), api.CodeNoCapablePool)
}

func (m *model) allowed(r *refusals, bootable bool) {
	r.when(!m.policies[api.PolicyMultiattach] || bootable && !m.policies[api.PolicyMultiattachBootable], api.CodePolicyDenied)
}

func (t *modelType) allows(pool string) bool {
	return len(t.pools) == 0 || slices.Contains(t.pools, pool)
}

// lives has the rules for a location of a volume of a type.
func (t *modelType) lives(r *refusals, p modelPlace) {
	r.when(!t.allows(p.pool), api.CodePolicyDenied)
	r.when(t.multiattach && p.format != api.FormatRaw, api.CodeUnsupportedDisk)
	r.when(t.multiattach && !modelCapable[p.pool], api.CodeNoCapablePool)
}

func (m *model) reserve(in api.AttachmentReserve) (r refusals) {
	i := m.instances[in.InstanceID]
	m.token(&r, in.Host, in.Epoch)
	r.when(i.holder() != "" && i.holder() != in.Host, api.CodeNotYourHost)
	r.when(m.attachments[in.ID] != nil, api.CodeConflict)
	r.when(i.state.OnShelf() || i.state == api.InstanceError, api.CodeStateForbidden)
	r.when(in.Device == "vda" && i.state != api.InstanceStopped, api.CodeRootAttachForbidden)
	r.when(in.Root && i.state == api.InstanceShelved, api.CodeRootAttachForbidden)
	m.splitBrain(&r, in.InstanceID, in.Host)
	m.free(&r, in.InstanceID, in.Device, in.Root)
	if v := m.reservable(&r, in); v == nil {
		return r
	}
	elsewhere := slices.ContainsFunc(m.at(in.VolumeID), func(a *modelAttachment) bool {
		host := m.instances[a.instance].holder()
		return host != "" && host != in.Host
	})
	r.when(elsewhere && !m.reaches(in.Host, in.VolumeID), api.CodeUnsupportedDisk)
	r.when(!elsewhere && !m.reaches(in.Host, in.VolumeID), api.CodeNotYourHost)
	if r == nil {
		m.add(in, api.AttachmentReserved)
	}
	return r
}

// free has the rules for the slot of a new attachment.
func (m *model) free(r *refusals, instance, device string, root bool) {
	r.when(m.instances[instance].locked, api.CodeInstanceLocked)
	r.when(device == "vda" && !root, api.CodeRootAttachForbidden)
	r.when(device != "vda" && root, api.CodeConflict)
	for _, a := range m.attachments {
		r.when(a.instance == instance && a.device == device, api.CodeConflict)
	}
}

// reservable has the rules for the volume, except reach.
func (m *model) reservable(r *refusals, in api.AttachmentReserve) *modelVolume {
	v := m.volumes[in.VolumeID]
	if r.when(v == nil, api.CodeNotFound); v == nil {
		return nil
	}
	t, others := m.types[v.typeName], m.at(in.VolumeID)
	r.when(m.lock(in.VolumeID) != nil, api.CodeMigrationActive)
	r.when(v.status != api.VolumeAvailable, api.CodeVolumeNotAvailable)
	r.when(v.generation != in.Generation, api.CodeStaleGeneration)
	r.when(len(others) > 0 && !t.multiattach, api.CodeVolumeInUse)
	r.when(t.multiattach && v.place.format != api.FormatRaw, api.CodeUnsupportedDisk)
	r.when(in.Root && t.multiattach && !v.bootable && !m.policies[api.PolicyMultiattachBootable], api.CodePolicyDenied)
	for _, a := range others {
		r.when(a.instance == in.InstanceID, api.CodeConflict)
	}
	if len(others) > 0 {
		m.allowed(r, v.bootable || in.Root)
	}
	return v
}

// add adds an attachment. A root volume becomes bootable.
func (m *model) add(in api.AttachmentReserve, state api.AttachmentState) {
	m.attachments[in.ID] = &modelAttachment{volume: in.VolumeID, instance: in.InstanceID, device: in.Device, mode: in.Mode, state: state}
	if in.Device == "vda" {
		m.volumes[in.VolumeID].bootable = true
	}
}

// held has the rules of every change of an attachment by a host.
func (m *model) held(r *refusals, id, host string, epoch int64) *modelAttachment {
	m.token(r, host, epoch)
	a := m.attachments[id]
	if r.when(a == nil, api.CodeNotFound); a != nil {
		r.when(m.instances[a.instance].holder() != host, api.CodeNotYourHost)
	}
	return a
}

// modelSteps has pairs of states, from and to.
var modelSteps = [][2]api.AttachmentState{
	{"reserved", "attaching"},
	{"attaching", "attached"},
	{"attached", "detaching"},
	{"detaching", "attached"},
	{"attaching", "error"},
	{"attached", "error"},
	{"detaching", "error"},
	{"error", "attaching"},
	{"error", "attached"},
	{"error", "detaching"},
}

func (m *model) transition(id string, in api.AttachmentTransition) (r refusals) {
	for _, from := range in.From {
		r.when(!slices.Contains(modelSteps, [2]api.AttachmentState{from, in.To}), api.CodeInvalidArgument)
	}
	a := m.held(&r, id, in.Host, in.Epoch)
	if a == nil {
		return r
	}
	r.when(!slices.Contains(in.From, a.state), api.CodeConflict)
	r.when(a.migration != "", api.CodeMigrationActive)
	if in.To == api.AttachmentDetaching {
		i := m.instances[a.instance]
		r.when(m.lock(a.volume) != nil, api.CodeMigrationActive)
		r.when(i.locked, api.CodeInstanceLocked)
		r.when(a.device != "vda" && i.state == api.InstanceShelved, api.CodeStateForbidden)
		r.when(a.device == "vda" && m.instances[a.instance].state != api.InstanceStopped, api.CodeRootDetachForbidden)
		m.splitBrain(&r, a.instance, in.Host)
	}
	if r == nil {
		a.state = in.To
	}
	return r
}

func (m *model) release(id string, in api.AttachmentRelease) (r refusals) {
	a := m.held(&r, id, in.Host, in.Epoch)
	if a == nil {
		return r
	}
	r.when(m.lock(a.volume) != nil, api.CodeMigrationActive)
	r.when(m.instances[a.instance].state == api.InstanceShelved, api.CodeStateForbidden)
	r.when(!in.Force && (a.state == api.AttachmentAttached || a.state == api.AttachmentAttaching), api.CodeConflict)
	if r == nil {
		delete(m.attachments, id)
	}
	return r
}

func (m *model) force(id string) (r refusals) {
	a := m.attachments[id]
	if r.when(a == nil, api.CodeNotFound); a == nil {
		return r
	}
	host := m.instances[a.instance].holder()
	r.when(host == "" || !m.hosts[host].fenced, api.CodeStateForbidden)
	m.splitBrain(&r, a.instance, host)
	r.when(m.lock(a.volume) != nil, api.CodeMigrationActive)
	if r == nil {
		delete(m.attachments, id)
	}
	return r
}

func (m *model) register(id string, v modelVolume, typeName string) (r refusals) {
	t := m.types[typeName]
	m.suits(&r, t, v.place.format, v.bootable)
	t.lives(&r, v.place)
	r.when(m.taken(v.place), api.CodeConflict)
	if r == nil {
		v.status, v.typeName, v.generation = api.VolumeAvailable, typeName, 1
		m.volumes[id] = &v
	}
	return r
}

// changed has the rules of every change of a volume, by a host or "" for an operator.
func (m *model) changed(r *refusals, id, host string) *modelVolume {
	v := m.volumes[id]
	if r.when(v == nil, api.CodeNotFound); v != nil && host != "" {
		r.when(v.host != host, api.CodeNotYourHost)
	}
	if host != "" {
		r.when(m.hosts[host].fenced, api.CodeStaleEpoch)
	}
	return v
}

func (m *model) setStatus(id, host string, from, to api.VolumeStatus) (r refusals) {
	v := m.changed(&r, id, host)
	if v == nil {
		return r
	}
	r.when(m.lock(id) != nil, api.CodeMigrationActive)
	r.when(v.status != from || len(m.at(id)) > 0, api.CodeConflict)
	if r == nil {
		v.status = to
	}
	return r
}

func (m *model) forget(id, host string) (r refusals) {
	if m.changed(&r, id, host) == nil {
		return r
	}
	r.when(m.lock(id) != nil, api.CodeMigrationActive)
	r.when(len(m.at(id)) > 0, api.CodeVolumeInUse)
	if r == nil {
		delete(m.volumes, id)
	}
	return r
}

func (m *model) setBootable(id, host string, bootable bool) (r refusals) {
	v := m.changed(&r, id, host)
	if v == nil {
		return r
	}
	multiattach := m.types[v.typeName].multiattach
	if g := m.lock(id); g != nil && g.toType != "" {
		multiattach = multiattach || m.types[g.toType].multiattach
	}
	r.when(bootable && !v.bootable && multiattach && !m.policies[api.PolicyMultiattachBootable], api.CodePolicyDenied)
	if r == nil {
		v.bootable = bootable
	}
	return r
}

// newType has the rules for a volume that gets another type, with its new format.
func (m *model) newType(r *refusals, id, typeName string, format api.Format) {
	v, t := m.volumes[id], m.types[typeName]
	r.when(t.multiattach != m.types[v.typeName].multiattach && len(m.at(id)) > 0, api.CodeInUseRetype)
	if typeName != v.typeName {
		m.suits(r, t, format, v.bootable)
	}
}

func (m *model) retype(id, host string, in api.VolumeRetype) (r refusals) {
	v := m.changed(&r, id, host)
	if v == nil {
		return r
	}
	t := m.types[in.Type]
	r.when(m.lock(id) != nil, api.CodeMigrationActive)
	r.when(v.status != api.VolumeAvailable, api.CodeVolumeNotAvailable)
	m.newType(&r, id, in.Type, v.place.format)
	if fits := func(p string) bool { return t.allows(p) && (!t.multiattach || modelCapable[p]) }; !fits(v.place.pool) {
		elsewhere := slices.ContainsFunc(modelPools, fits)
		r.when(in.MigrationPolicy != api.RetypeOnDemand, api.CodePolicyDenied)
		r.when(len(m.at(id)) > 1, api.CodeMultiattached)
		r.when(slices.ContainsFunc(m.at(id), func(a *modelAttachment) bool { return m.instances[a.instance].state.OnShelf() }), api.CodeStateForbidden)
		r.when(elsewhere, api.CodeConflict)
		r.when(!elsewhere, api.CodeNoCapablePool)
	}
	if r == nil {
		v.typeName = in.Type
	}
	return r
}

func (m *model) setMultiattach(typeName string, on bool) (r refusals) {
	t := m.types[typeName]
	if t.multiattach == on {
		return nil
	}
	r.when(typeName == store.DefaultType, api.CodeStateForbidden)
	changed := &modelType{multiattach: on, pools: t.pools}
	for id, v := range m.volumes {
		g := m.lock(id)
		r.when(g != nil && (v.typeName == typeName || g.toType == typeName), api.CodeMigrationActive)
		if v.typeName == typeName {
			r.when(len(m.at(id)) > 0, api.CodeInUseRetype)
			m.suits(&r, changed, v.place.format, v.bootable)
			r.when(on && !modelCapable[v.place.pool], api.CodeNoCapablePool)
		}
	}
	if r == nil {
		t.multiattach = on
	}
	return r
}
