// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"slices"

	"github.com/volferry/volferry/internal/api"
)

func (m *model) migrate(in api.MigrationRegister) (r refusals) {
	m.token(&r, in.Host, in.Epoch)
	v := m.volumes[in.VolumeID]
	if r.when(v == nil, api.CodeNotFound); v == nil {
		return r
	}
	to := modelPlace{pool: in.Dst.Pool, name: in.Dst.Name, host: in.Host, format: in.Dst.Format}
	at := m.at(in.VolumeID)
	r.when(m.lock(in.VolumeID) != nil, api.CodeMigrationActive)
	r.when(v.generation != in.Generation, api.CodeStaleGeneration)
	r.when(v.status != api.VolumeAvailable, api.CodeVolumeNotAvailable)
	held := m.hasHost(in.VolumeID)
	if held {
		r.when(len(at) > 1, api.CodeMultiattached)
	} else {
		r.when(in.SrcAttachmentID != "", api.CodeConflict)
		r.when(!m.reaches(in.Host, in.VolumeID), api.CodeNotYourHost)
	}
	for _, a := range at {
		i := m.instances[a.instance]
		if !held {
			m.splitBrain(&r, a.instance, "")
			continue
		}
		r.when(m.attachments[in.SrcAttachmentID] != a, api.CodeConflict)
		r.when(a.state != api.AttachmentAttached, api.CodeStateForbidden)
		r.when(i.host != in.Host, api.CodeNotYourHost)
		r.when(i.state == api.InstanceShelved, api.CodeStateForbidden)
		m.splitBrain(&r, a.instance, in.Host)
	}
	r.when(v.place.pool == to.pool && v.place.name == to.name, api.CodeSameLocation)
	target := m.types[v.typeName]
	if in.ToType != "" {
		target = m.types[in.ToType]
		m.newType(&r, in.VolumeID, in.ToType, to.format)
	}
	target.lives(&r, to)
	r.when(m.taken(to), api.CodeDstInUse)
	if r != nil {
		return r
	}
	m.migrations[in.ID] = &modelMigration{
		volume: in.VolumeID, host: in.Host, src: in.SrcAttachmentID, dst: in.DstAttachmentID, toType: in.ToType, to: to, state: api.MigrationStarting,
	}
	if held {
		dst := *at[0]
		dst.state, dst.migration = api.AttachmentReserved, in.ID
		m.attachments[in.DstAttachmentID] = &dst
	}
	return nil
}

// hasHost reports whether a host has an instance with the volume.
func (m *model) hasHost(volume string) bool {
	return slices.ContainsFunc(m.at(volume), func(a *modelAttachment) bool { return m.instances[a.instance].holder() != "" })
}

func (m *model) move(id string, in api.MigrationTransition) (r refusals) {
	m.token(&r, in.Host, in.Epoch)
	g := m.migrations[id]
	if r.when(g == nil, api.CodeNotFound); g == nil {
		return r
	}
	r.when(g.host != in.Host, api.CodeNotYourHost)
	r.when(g.state.Final(), api.CodeNoMigration)
	r.when(!slices.Contains(in.From, g.state), api.CodeConflict)
	r.when(in.To == api.MigrationCompleted && g.state != api.MigrationCompleting && g.state != api.MigrationNeedsOperator, api.CodeStateForbidden)
	r.when((in.To == api.MigrationCancelled || in.To == api.MigrationError) && (g.state == api.MigrationCompleting || g.state == api.MigrationNeedsOperator) && !in.NotSwitched, api.CodeStateForbidden)
	if r == nil {
		m.end(id, in.To)
	}
	return r
}

// end sets a migration's next state, with its effects if it is the last one.
func (m *model) end(id string, to api.MigrationState) {
	g := m.migrations[id]
	g.state, g.before = to, ""
	switch to {
	case api.MigrationCompleted:
		v := m.volumes[g.volume]
		v.place, v.host, v.generation = g.to, g.host, v.generation+1
		if g.toType != "" {
			v.typeName = g.toType
		}
		if g.dst != "" {
			delete(m.attachments, g.src)
			m.attachments[g.dst].state, m.attachments[g.dst].migration = api.AttachmentAttached, ""
		}
	case api.MigrationCancelled, api.MigrationError:
		delete(m.attachments, g.dst)
	default:
	}
}

func (m *model) fence(host string) {
	h := m.hosts[host]
	h.fenced, h.epoch = true, h.epoch+1
	for _, g := range m.migrations {
		if g.host == host && !g.state.Final() && g.state != api.MigrationOrphaned {
			g.state, g.before = api.MigrationOrphaned, g.state
		}
	}
}

func (m *model) rejoin(host string, epoch int64) (r refusals) {
	h := m.hosts[host]
	if r.when(epoch != h.epoch, api.CodeStaleEpoch); r != nil {
		return r
	}
	h.fenced = false
	for _, g := range m.migrations {
		if g.host == host && g.state == api.MigrationOrphaned {
			g.state, g.before = g.before, ""
		}
	}
	return nil
}

func (m *model) abandon(id, keep string) (r refusals) {
	g := m.migrations[id]
	if r.when(g == nil, api.CodeNotFound); g == nil {
		return r
	}
	r.when(g.state.Final(), api.CodeNoMigration)
	r.when(!g.state.Final() && g.state != api.MigrationOrphaned, api.CodeStateForbidden)
	whole := []api.MigrationState{api.MigrationCopied, api.MigrationCompleting, api.MigrationNeedsOperator}
	r.when(g.state == api.MigrationOrphaned && keep == api.KeepDst && !slices.Contains(whole, g.before), api.CodeCopyNotVerified)
	if r != nil {
		return r
	}
	if keep == api.KeepDst {
		m.end(id, api.MigrationCompleted)
	} else {
		m.end(id, api.MigrationCancelled)
	}
	return nil
}
