// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"fmt"
	"path/filepath"

	"pgregory.net/rapid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// actions returns the requests. Most of their values are valid, because requests that are refused
// at once test little.
func (m *machine) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){"": m.check}
	for _, a := range []struct {
		name  string
		do    func(*rapid.T)
		often int
	}{
		{"reserve", m.doReserve, 6},
		{"step", m.doStep, 6},
		{"release", m.doRelease, 2},
		{"force", m.doForce, 1},
		{"register", m.doRegister, 1},
		{"status", m.doStatus, 1},
		{"forget", m.doForget, 1},
		{"bootable", m.doBootable, 1},
		{"retype", m.doRetype, 1},
		{"type", m.doType, 1},
		{"policy", m.doPolicy, 1},
		{"instance state", m.doInstanceState, 1},
		{"shelf", m.doShelf, 8},
		{"ask", m.doAsk, 1},
		{"shelved attach", m.doShelvedAttach, 6},
		{"shelved detach", m.doShelvedDetach, 2},
		{"lock", m.doLock, 2},
		{"unlock", m.doUnlock, 2},
		{"migrate", m.doMigrate, 4},
		{"move", m.doMove, 4},
		{"fence", m.doFence, 1},
		{"rejoin", m.doRejoin, 3},
		{"abandon", m.doAbandon, 2},
	} {
		for n := range a.often {
			actions[fmt.Sprint(a.name, " ", n)] = a.do
		}
	}
	return actions
}

func draw[T any](rt *rapid.T, label string, of ...T) T { return rapid.SampledFrom(of).Draw(rt, label) }

// rarely is true sometimes; rapid draws the ends of a range more often than its middle.
func rarely(rt *rapid.T, label string) bool { return rapid.IntRange(0, 15).Draw(rt, label) == 11 }

// one draws a key or, rarely, an unknown id.
func one[T any](m *machine, rt *rapid.T, label, kind string, of map[string]T) string {
	if rarely(rt, "unknown "+label) {
		return m.fresh(kind)
	}
	if len(of) == 0 {
		rt.Skip("there is no " + label)
	}
	return draw(rt, label, keys(of)...)
}

func (m *machine) drawHost(rt *rapid.T) string { return draw(rt, "host", hostA, hostB) }

// hostOr draws the right host for a request or, rarely, any.
func (m *machine) hostOr(rt *rapid.T, right string) string {
	if right == "" || rarely(rt, "any host") {
		return m.drawHost(rt)
	}
	return right
}

func (m *machine) epoch(rt *rapid.T, host string) int64 {
	if rarely(rt, "stale") {
		return m.hosts[host].epoch + draw(rt, "by", int64(-1), 1)
	}
	return m.hosts[host].epoch
}

func (m *machine) generation(rt *rapid.T, volume string) int64 {
	if v := m.volumes[volume]; v != nil && !rarely(rt, "old generation") {
		return v.generation
	}
	return 7
}

// caller draws an operator or a host, "" for an operator.
func (m *machine) caller(rt *rapid.T) (store.Call, string) {
	host := draw(rt, "caller", "", "", hostA, hostB)
	if host == "" {
		return nobody, ""
	}
	return store.Call{Who: "test", Host: &store.HostToken{ID: host, Epoch: m.hosts[host].epoch}}, host
}

func (m *machine) doReserve(rt *rapid.T) {
	in := api.AttachmentReserve{
		VolumeID: one(m, rt, "volume", volumeKind, m.volumes), InstanceID: draw(rt, "instance", web, app, db),
		Device: draw(rt, "device", "vdb", "vdc", "vda"), Mode: draw(rt, "mode", api.ModeRW, api.ModeRO),
	}
	in.Root = (in.Device == "vda") != rarely(rt, "root or not")
	in.ID, in.Generation = m.fresh(attachmentKind), m.generation(rt, in.VolumeID)
	in.Host = m.hostOr(rt, m.instances[in.InstanceID].host)
	in.Epoch = m.epoch(rt, in.Host)
	_, err := m.s.Attachments.Reserve(m.t.Context(), nobody, in)
	agree(rt, fmt.Sprintf("reserve %+v", in), err, m.reserve(in))
}

// attachment draws an attachment, its state and its host.
func (m *machine) attachment(rt *rapid.T) (id string, state api.AttachmentState, host string) {
	id = one(m, rt, "attachment", attachmentKind, m.attachments)
	if a := m.attachments[id]; a != nil {
		return id, a.state, m.hostOr(rt, m.instances[a.instance].host)
	}
	return id, api.AttachmentReserved, m.drawHost(rt)
}

func (m *machine) doStep(rt *rapid.T) {
	id, state, host := m.attachment(rt)
	pair := draw(rt, "step", modelSteps...)
	if !rarely(rt, "another step") {
		var fit [][2]api.AttachmentState
		for _, p := range modelSteps {
			if p[0] == state {
				fit = append(fit, p)
			}
		}
		pair = draw(rt, "fitting step", fit...)
	}
	in := api.AttachmentTransition{From: []api.AttachmentState{pair[0]}, To: pair[1], Host: host, Epoch: m.epoch(rt, host)}
	if rarely(rt, "from another") {
		in.From = append(in.From, draw(rt, "from", api.AttachmentReserved, api.AttachmentAttached, api.AttachmentError))
	}
	_, err := m.s.Attachments.Transition(m.t.Context(), nobody, id, in)
	agree(rt, fmt.Sprintf("step %s %+v", id, in), err, m.transition(id, in))
}

func (m *machine) doRelease(rt *rapid.T) {
	id, _, host := m.attachment(rt)
	in := api.AttachmentRelease{Host: host, Epoch: m.epoch(rt, host), Force: rapid.Bool().Draw(rt, "force")}
	_, err := m.s.Attachments.Release(m.t.Context(), nobody, id, in)
	agree(rt, fmt.Sprintf("release %s %+v", id, in), err, m.release(id, in))
}

func (m *machine) doForce(rt *rapid.T) {
	id := one(m, rt, "attachment", attachmentKind, m.attachments)
	_, err := m.s.Attachments.ForceDelete(m.t.Context(), nobody, id)
	agree(rt, "force "+id, err, m.force(id))
}

func (m *machine) place(rt *rapid.T, host string) modelPlace {
	p := modelPlace{pool: draw(rt, "pool", modelPools...), name: draw(rt, "name", "0", "1", "2", "3"), host: host, format: api.FormatRaw}
	if rarely(rt, "qcow2") {
		p.format = api.FormatQcow2
	}
	return p
}

func (p modelPlace) location() api.Location {
	return api.Location{Pool: p.pool, Name: p.name, Path: filepath.Join("/", p.pool, p.name), Format: p.format, SizeBytes: size}
}

func (m *machine) doRegister(rt *rapid.T) {
	host, typeName := m.drawHost(rt), draw(rt, "type", keys(m.types)...)
	v := modelVolume{host: host, bootable: rarely(rt, "bootable"), place: m.place(rt, host)}
	id := m.fresh(volumeKind)
	in := api.VolumeRegister{ID: id, Name: "v-" + id, Status: api.VolumeAvailable, Type: typeName, Bootable: v.bootable, Host: host, Location: v.place.location()}
	_, err := m.s.Volumes.Register(m.t.Context(), nobody, in)
	agree(rt, fmt.Sprintf("register %+v", in), err, m.register(id, v, typeName))
}

func (m *machine) doStatus(rt *rapid.T) {
	id := one(m, rt, "volume", volumeKind, m.volumes)
	pair := draw(rt, "statuses", [2]api.VolumeStatus{"error", "available"}, [2]api.VolumeStatus{"deleting", "available"},
		[2]api.VolumeStatus{"available", "deleting"}, [2]api.VolumeStatus{"available", "error"})
	call, host := m.caller(rt)
	_, err := m.s.Volumes.Transition(m.t.Context(), call, id, api.VolumeTransition{From: pair[0], To: pair[1]})
	agree(rt, fmt.Sprint("status ", id, pair, host), err, m.setStatus(id, host, pair[0], pair[1]))
}

func (m *machine) doForget(rt *rapid.T) {
	id := one(m, rt, "volume", volumeKind, m.volumes)
	call, host := m.caller(rt)
	_, err := m.s.Volumes.Forget(m.t.Context(), call, id)
	agree(rt, fmt.Sprint("forget ", id, host), err, m.forget(id, host))
}

func (m *machine) doBootable(rt *rapid.T) {
	id, on := one(m, rt, "volume", volumeKind, m.volumes), rapid.Bool().Draw(rt, "bootable")
	call, host := m.caller(rt)
	_, err := m.s.Volumes.Update(m.t.Context(), call, id, api.VolumeUpdate{Bootable: &on})
	agree(rt, fmt.Sprint("bootable ", id, on, host), err, m.setBootable(id, host, on))
}

func (m *machine) doRetype(rt *rapid.T) {
	id := one(m, rt, "volume", volumeKind, m.volumes)
	in := api.VolumeRetype{Type: draw(rt, "type", keys(m.types)...), MigrationPolicy: draw(rt, "migration policy", api.RetypeNever, api.RetypeOnDemand)}
	call, host := m.caller(rt)
	_, err := m.s.Retypes.Retype(m.t.Context(), call, id, in)
	agree(rt, fmt.Sprintf("retype %s %+v %s", id, in, host), err, m.retype(id, host, in))
}

func (m *machine) doType(rt *rapid.T) {
	name, on := draw(rt, "type", keys(m.types)...), rapid.Bool().Draw(rt, "multiattach")
	_, err := m.s.Types.Update(m.t.Context(), nobody, name, api.VolumeTypeUpdate{Multiattach: &on})
	agree(rt, fmt.Sprint("type ", name, on), err, m.setMultiattach(name, on))
}

func (m *machine) doPolicy(rt *rapid.T) {
	name, on := draw(rt, "policy", keys(m.policies)...), rapid.IntRange(0, 2).Draw(rt, "on") > 0
	_, err := m.s.Policies.Set(m.t.Context(), nobody, name, api.PolicyUpdate{Enabled: on})
	agree(rt, fmt.Sprint("policy ", name, on), err, nil)
	m.policies[name] = on
}

func (m *machine) doInstanceState(rt *rapid.T) {
	i := m.instances[draw(rt, "instance", web, app, db)]
	state := draw(rt, "state", api.InstanceStopped, api.InstanceRunning, api.InstancePaused, api.InstanceStopped, api.InstanceStopped, api.InstanceShelved, api.InstanceRunning, api.InstanceError)
	var want refusals
	want.when(m.hosts[i.host].fenced, api.CodeStaleEpoch)
	before := i.state
	i.state = state
	said := m.report(i.host)
	_, err := m.s.Reports.Receive(m.t.Context(), nobody, said)
	if want != nil || before.OnShelf() || state.OnShelf() {
		i.state = before
	}
	if want == nil {
		m.reported(said)
	}
	agree(rt, fmt.Sprint("instance state ", state), err, want)
}

func (m *machine) doMigrate(rt *rapid.T) {
	in := api.MigrationRegister{ID: m.fresh(migrationKind), VolumeID: one(m, rt, "volume", volumeKind, m.volumes), Method: "overlay"}
	right := ""
	if v := m.volumes[in.VolumeID]; v != nil {
		right = v.host
	}
	for _, id := range keys(m.attachments) {
		if a := m.attachments[id]; a.volume == in.VolumeID && a.migration == "" && m.instances[a.instance].holder() != "" {
			in.SrcAttachmentID, in.DstAttachmentID, right = id, m.fresh(attachmentKind), m.instances[a.instance].host
		}
	}
	if rarely(rt, "another attachment") {
		in.SrcAttachmentID, in.DstAttachmentID = m.fresh(attachmentKind), m.fresh(attachmentKind)
	}
	in.Host = m.hostOr(rt, right)
	in.Epoch, in.Generation = m.epoch(rt, in.Host), m.generation(rt, in.VolumeID)
	in.Dst = m.place(rt, in.Host).location()
	if rapid.Bool().Draw(rt, "retype") {
		in.ToType = draw(rt, "type", keys(m.types)...)
	}
	_, err := m.s.Migrations.Register(m.t.Context(), nobody, in)
	agree(rt, fmt.Sprintf("migrate %+v", in), err, m.migrate(in))
}

func (m *machine) doMove(rt *rapid.T) {
	id, host := one(m, rt, "migration", migrationKind, m.migrations), ""
	from := api.MigrationStarting
	if g := m.migrations[id]; g != nil {
		host, from = g.host, g.state
	}
	host = m.hostOr(rt, host)
	if rarely(rt, "another state") {
		from = draw(rt, "from", api.MigrationStarting, api.MigrationCopying, api.MigrationCancelled)
	}
	in := api.MigrationTransition{From: []api.MigrationState{from}, Host: host, Epoch: m.epoch(rt, host), To: draw(rt, "to",
		api.MigrationStarted, api.MigrationCopying, api.MigrationCopied, api.MigrationCompleting, api.MigrationCompleting, api.MigrationCompleted,
		api.MigrationCompleted, api.MigrationCancelling, api.MigrationCancelled, api.MigrationError, api.MigrationNeedsOperator), NotSwitched: !rarely(rt, "no word of the switch")}
	_, err := m.s.Migrations.Transition(m.t.Context(), nobody, id, in)
	agree(rt, fmt.Sprintf("move %s %+v", id, in), err, m.move(id, in))
}

func (m *machine) doFence(rt *rapid.T) {
	host := m.drawHost(rt)
	if m.hosts[host].fenced || rapid.IntRange(0, 3).Draw(rt, "mercy") != 1 {
		rt.Skip("a site whose hosts are fenced all the time tries little")
	}
	_, err := m.s.Hosts.Fence(m.t.Context(), nobody, host, cut)
	agree(rt, "fence "+host, err, nil)
	m.fence(host)
}

func (m *machine) doRejoin(rt *rapid.T) {
	host := m.drawHost(rt)
	epoch := m.epoch(rt, host)
	_, err := m.s.Hosts.Rejoin(m.t.Context(), nobody, host, api.HostRejoin{Epoch: epoch})
	agree(rt, fmt.Sprint("rejoin ", host, epoch), err, m.rejoin(host, epoch))
}

func (m *machine) doAbandon(rt *rapid.T) {
	id, keep := one(m, rt, "migration", migrationKind, m.migrations), draw(rt, "keep", api.KeepSrc, api.KeepDst)
	_, err := m.s.Migrations.Abandon(m.t.Context(), nobody, id, api.MigrationAbandon{Keep: keep, Reason: "test", EvenIfCorrupt: true})
	agree(rt, "abandon "+id+" keep "+keep, err, m.abandon(id, keep))
}
