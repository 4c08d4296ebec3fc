// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/volferry/volferry/internal/api"
)

// holder returns the host that has an instance, "" for none.
func (i *modelInstance) holder() string {
	if i.state == api.InstanceShelvedOffloaded {
		return ""
	}
	return i.host
}

func (i *modelInstance) ownedBy(host string) bool {
	return i.host == host || i.holder() == "" && i.asked == host
}

// modelShelfSteps has the transitions of instances.
var modelShelfSteps = [][2]api.InstanceState{
	{"stopped", "shelved"},
	{"shelved", "shelved"},
	{"shelved", "shelved_offloaded"},
	{"shelved_offloaded", "shelved"},
	{"shelved", "stopped"},
}

// transitionInstance shelves or unshelves an instance.
func (m *model) transitionInstance(id string, in api.InstanceTransition) (r refusals) {
	m.token(&r, in.Host, in.Epoch)
	i := m.instances[id]
	again := in.From != in.To && i.state == in.To && i.op == in.OpID && (i.host == in.Host || in.To == api.InstanceShelvedOffloaded)
	if again {
		return r
	}
	claim := in.From == api.InstanceShelvedOffloaded
	state := i.state
	if in.From == api.InstanceStopped && (state == api.InstanceRunning || state == api.InstancePaused) {
		state = api.InstanceStopped
	}
	r.when(state != in.From, api.CodeConflict)
	may := i.host == in.Host || claim && (i.asked == in.Host || i.fromHost == in.Host)
	lost := claim && (state != in.From || i.asked != "") // to another host
	r.when(!may && lost, api.CodeConflict)
	r.when(!may && !lost, api.CodeNotYourHost)
	undo := in.To == api.InstanceShelvedOffloaded && i.claimOp != ""
	r.when(undo && i.claimOp != in.OpID, api.CodeConflict)
	if in.From == api.InstanceStopped || in.To == api.InstanceShelvedOffloaded && !undo {
		m.atRest(&r, id)
	}
	r.when((in.From == api.InstanceStopped || claim) && i.locked, api.CodeInstanceLocked)
	switch {
	case claim:
		m.unshelvable(&r, id, in.Host)
		m.splitBrain(&r, id, "")
	case in.From == api.InstanceStopped:
		m.splitBrain(&r, id, in.Host)
	}
	if r != nil {
		return r
	}
	switch {
	case claim:
		i.fromHost, i.claimOp, i.host = i.host, in.OpID, in.Host
	case undo:
		i.host, i.fromHost, i.claimOp = i.fromHost, "", ""
	case in.To == api.InstanceStopped:
		i.asked, i.fromHost, i.claimOp = "", "", ""
	}
	i.state, i.op = in.To, in.OpID
	return nil
}

// atRest has the rules for the volumes of an instance that is shelved.
func (m *model) atRest(r *refusals, instance string) {
	for _, a := range m.attachments {
		if a.instance == instance && a.migration == "" {
			r.when(m.lock(a.volume) != nil, api.CodeMigrationActive)
			r.when(a.state != api.AttachmentAttached, api.CodeConflict)
		}
	}
}

// unshelvable has the rules for an instance that a host claims.
func (m *model) unshelvable(r *refusals, instance, host string) {
	root := false
	for _, a := range m.attachments {
		if a.instance == instance {
			root = root || a.device == "vda"
			r.when(!m.reaches(host, a.volume), api.CodeUnsupportedDisk)
			r.when(m.lock(a.volume) != nil, api.CodeMigrationActive)
		}
	}
	r.when(!root, api.CodeRootVolumeMissing)
}

// shelvedBy has the rules for changes, by a host or "" for an operator, of the volumes of an
// instance without a host.
func (m *model) shelvedBy(r *refusals, instance, host string) {
	i := m.instances[instance]
	if host != "" {
		r.when(m.hosts[host].fenced, api.CodeStaleEpoch)
		r.when(!i.ownedBy(host), api.CodeNotYourHost)
	}
	// ErrOnHost has no code: the server asks the host.
	r.when(i.holder() != "", api.CodeInternal)
	m.splitBrain(r, instance, "")
	r.when(i.locked, api.CodeInstanceLocked)
}

func (m *model) attachShelved(in api.AttachmentReserve, host string) (r refusals) {
	m.shelvedBy(&r, in.InstanceID, host)
	m.free(&r, in.InstanceID, in.Device, in.Root)
	if v := m.reservable(&r, in); v != nil && host != "" {
		r.when(!m.owns(host, in.VolumeID), api.CodeNotYourHost)
	}
	return r
}

// nextDevice returns the device of a volume for a request without one.
func (m *model) nextDevice(instance string, root bool) string {
	if root {
		return "vda"
	}
	for _, device := range []string{"vdb", "vdc", "vdd", "vde", "vdf", "vdg", "vdh"} {
		if !slices.ContainsFunc(keys(m.attachments), func(id string) bool {
			a := m.attachments[id]
			return a.instance == instance && a.device == device
		}) {
			return device
		}
	}
	return "vdi"
}

func (m *machine) doShelf(rt *rapid.T) {
	id := draw(rt, "instance", web, app, db)
	i := m.instances[id]
	pair := draw(rt, "step", modelShelfSteps...)
	if !rarely(rt, "another step") {
		var fit [][2]api.InstanceState
		for _, p := range modelShelfSteps {
			if p[0] == i.state || p[0] == api.InstanceStopped && !i.state.OnShelf() {
				fit = append(fit, p)
			}
		}
		pair = draw(rt, "fitting step", fit...)
	}
	host := m.hostOr(rt, i.host)
	if pair[0] == api.InstanceShelvedOffloaded && i.asked != "" && rapid.Bool().Draw(rt, "where it was asked for") {
		host = i.asked
	}
	in := api.InstanceTransition{From: pair[0], To: pair[1], Host: host, Epoch: m.epoch(rt, host), OpID: m.fresh(migrationKind)}
	if i.op != "" && rapid.Bool().Draw(rt, "same op") {
		in.OpID = i.op
	}
	if in.To == api.InstanceShelved && in.From != api.InstanceShelvedOffloaded {
		in.Definition = webDefinition()
	}
	_, err := m.s.Shelf.Transition(m.t.Context(), nobody, id, in)
	agree(rt, fmt.Sprintf("shelf %s %+v", id, in), err, m.transitionInstance(id, in))
}

func (m *machine) doAsk(rt *rapid.T) {
	id, host := draw(rt, "instance", web, app, db), m.drawHost(rt)
	i := m.instances[id]
	var want refusals
	taken := i.state == api.InstanceShelved && m.hosts[i.host].fenced
	if taken && i.claimOp == "" {
		m.atRest(&want, id)
	}
	agree(rt, "ask for "+id+" on "+host, m.s.Shelf.AskUnshelve(m.t.Context(), nobody, id, host), want)
	if want != nil {
		return
	}
	if taken {
		if i.claimOp != "" {
			i.host = i.fromHost
		}
		i.state, i.op, i.fromHost, i.claimOp = api.InstanceShelvedOffloaded, i.claimOp, "", ""
	}
	if i.holder() == "" {
		i.asked = host
	}
}

func (m *machine) doShelvedAttach(rt *rapid.T) {
	in := api.VolumeAttach{Instance: m.offloadedOrAny(rt), Device: draw(rt, "device", "", "", "vdb", "vda"), Mode: draw(rt, "mode", "", api.ModeRO)}
	in.Root = in.Device != "vdb" && rapid.Bool().Draw(rt, "root") || rarely(rt, "root somewhere")
	volume := one(m, rt, "volume", volumeKind, m.volumes)
	call, host := m.caller(rt)
	want := api.AttachmentReserve{VolumeID: volume, InstanceID: in.Instance, Device: in.Device, Mode: in.Mode, Root: in.Root}
	if want.Mode == "" {
		want.Mode = api.ModeRW
	}
	if want.Device == "" {
		want.Device = m.nextDevice(in.Instance, in.Root)
	}
	if v := m.volumes[volume]; v != nil {
		want.Generation = v.generation
	}
	wrong := m.attachShelved(want, host)
	a, err := m.s.Shelf.Attach(m.t.Context(), call, volume, in)
	agree(rt, fmt.Sprintf("shelved attach %s %+v %s", volume, in, host), err, wrong)
	if wrong == nil {
		want.ID = a.ID
		m.add(want, api.AttachmentAttached)
	}
}

// offloadedOrAny draws an instance without a host, if there is one, or rarely any.
func (m *machine) offloadedOrAny(rt *rapid.T) string {
	all := keys(m.instances)
	off := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return m.instances[id].holder() != "" })
	if len(off) == 0 || rarely(rt, "any instance") {
		return draw(rt, "instance", all...)
	}
	return draw(rt, "offloaded instance", off...)
}

func (m *machine) doShelvedDetach(rt *rapid.T) {
	id := one(m, rt, "attachment", attachmentKind, m.attachments)
	call, host := m.caller(rt)
	var want refusals
	a := m.attachments[id]
	if host != "" {
		want.when(m.hosts[host].fenced, api.CodeStaleEpoch)
	}
	if want.when(a == nil, api.CodeNotFound); a != nil {
		m.shelvedBy(&want, a.instance, host)
		want.when(m.lock(a.volume) != nil, api.CodeMigrationActive)
	}
	var err error
	if a != nil && rapid.Bool().Draw(rt, "by volume") {
		_, err = m.s.Shelf.Detach(m.t.Context(), call, a.volume, api.VolumeDetach{Instance: a.instance})
	} else {
		_, err = m.s.Shelf.DeleteAttachment(m.t.Context(), call, id)
	}
	agree(rt, "shelved detach "+id+" "+host, err, want)
	if want == nil {
		delete(m.attachments, id)
	}
}

func (m *machine) doLock(rt *rapid.T) {
	id := draw(rt, "instance", web, app, db)
	var want refusals
	want.when(m.instances[id].locked, api.CodeInstanceLocked)
	_, err := m.s.Instances.Lock(m.t.Context(), nobody, id, api.InstanceLock{Reason: "test"})
	agree(rt, "lock "+id, err, want)
	m.instances[id].locked = true
}

func (m *machine) doUnlock(rt *rapid.T) {
	id := draw(rt, "instance", web, app, db)
	var want refusals
	want.when(!m.instances[id].locked, api.CodeStateForbidden)
	_, err := m.s.Instances.Unlock(m.t.Context(), nobody, id)
	agree(rt, "unlock "+id, err, want)
	m.instances[id].locked = false
}
