// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/volferry/volferry/internal/api"
)

// hostCount is how many hosts the model has.
const hostCount = 3

// world is what decides about the locks of one volume: its attachments and its
// migration, and the tokens of all hosts. Worlds are values: hold is never
// changed in place.
type world struct {
	gone, deleting, many bool
	keeper               int // the host that has the volume in its care
	generation           int64
	holds                []hold // by id
	move                 move   // the zero move where there is none
	epochs               [hostCount]int64
	fenced               [hostCount]bool
}

// hold is an attachment. Dst says that it is what a migration has reserved.
type hold struct {
	id, instance string
	host         int
	state        api.AttachmentState
	dst          bool
}

// move is an open migration. Before is the state that an orphaned one had.
type move struct {
	id            string
	host          int
	state, before api.MigrationState
	src, dst      string
}

// kind says what is asked of the registry.
type kind string

const (
	reserve     kind = "reserve"
	step        kind = "step"
	release     kind = "release"
	migrate     kind = "migrate"
	advance     kind = "advance"
	abandon     kind = "abandon"
	retype      kind = "retype"
	setStatus   kind = "status"
	forget      kind = "forget"
	forceDelete kind = "force-delete"
	fenceHost   kind = "fence"
	rejoinHost  kind = "rejoin"
	read        kind = "read"
)

// call is one request. Host is who asks, or who is fenced; from and to are states
// of whatever the kind is about.
type call struct {
	kind       kind
	volume     string // "" of what is about a host
	host       int
	epoch      int64
	generation int64
	id         string // of the attachment or the migration
	instance   string
	src, dst   string // the attachments of a migration
	from, to   string
	force      bool
	keepDst    bool
}

// answer is what came back. Unknown says that the request may have been done,
// and that no answer will ever tell.
type answer struct {
	unknown bool
	code    api.Code // "" is done
	state   string   // of what the answer shows
	epoch   int64    // of the host that the answer shows
	seen    *world   // of a read, without hosts
}

// apply returns what a call makes of a world and what it is answered; or the
// codes with which it is refused, one for each rule that stands against it.
func (w world) apply(c call) (world, answer, []api.Code) {
	switch c.kind {
	case fenceHost:
		return w.fence(c)
	case rejoinHost:
		return w.rejoin(c)
	case read:
		if w.gone {
			return w, answer{}, []api.Code{api.CodeNotFound}
		}
		return w, answer{seen: &w}, nil
	case reserve:
		return w.reserve(c)
	case step, release, forceDelete:
		return w.end(c)
	case migrate:
		return w.register(c)
	case advance, abandon:
		return w.advance(c)
	case retype, setStatus, forget:
		return w.change(c)
	}
	panic("unknown kind " + string(c.kind))
}

// rules collects the codes of the rules that are broken.
type rules []api.Code

func (r *rules) deny(broken bool, code api.Code) {
	if broken {
		*r = append(*r, code)
	}
}

// stale reports whether the caller is of another epoch, or fenced.
func (w world) stale(c call) bool { return w.fenced[c.host] || w.epochs[c.host] != c.epoch }

func (w world) reserve(c call) (world, answer, []api.Code) {
	var no rules
	no.deny(w.stale(c), api.CodeStaleEpoch)
	if w.gone {
		return w, answer{}, append(no, api.CodeNotFound)
	}
	no.deny(w.move.id != "", api.CodeMigrationActive)
	no.deny(w.deleting, api.CodeVolumeNotAvailable)
	no.deny(w.generation != c.generation, api.CodeStaleGeneration)
	no.deny(len(w.holds) > 0 && !w.many, api.CodeVolumeInUse)
	no.deny(slices.ContainsFunc(w.holds, func(h hold) bool { return h.instance == c.instance }), api.CodeConflict)
	w.holds = with(w.holds, hold{id: c.id, instance: c.instance, host: c.host, state: api.AttachmentReserved})
	return w, answer{state: string(api.AttachmentReserved)}, no
}

// end is every change of an attachment that is there.
func (w world) end(c call) (world, answer, []api.Code) {
	var no rules
	no.deny(c.kind != forceDelete && w.stale(c), api.CodeStaleEpoch)
	i := slices.IndexFunc(w.holds, func(h hold) bool { return h.id == c.id })
	if i < 0 {
		return w, answer{}, append(no, api.CodeNotFound)
	}
	h := w.holds[i]
	no.deny(c.kind != forceDelete && h.host != c.host, api.CodeNotYourHost)
	switch c.kind {
	case step:
		no.deny(h.dst || w.move.id != "" && c.to == string(api.AttachmentDetaching), api.CodeMigrationActive)
		no.deny(string(h.state) != c.from, api.CodeConflict)
		h.state = api.AttachmentState(c.to)
		w.holds = with(without(w.holds, h.id), h)
		return w, answer{state: c.to}, no
	case release:
		no.deny(!c.force && (h.state == api.AttachmentAttached || h.state == api.AttachmentAttaching), api.CodeConflict)
	default:
		// A host that is not fenced is asked to do it, and is not there.
		no.deny(!w.fenced[h.host], api.CodeStateForbidden)
		no.deny(!w.fenced[h.host], api.CodeHypervisorUnavailable)
	}
	no.deny(w.move.id != "", api.CodeMigrationActive)
	w.holds = without(w.holds, h.id)
	if c.kind == forceDelete {
		return w, answer{}, no // it shows nothing
	}
	return w, answer{state: string(h.state)}, no
}

func (w world) register(c call) (world, answer, []api.Code) {
	var no rules
	no.deny(w.stale(c), api.CodeStaleEpoch)
	if w.gone {
		return w, answer{}, append(no, api.CodeNotFound)
	}
	no.deny(w.move.id != "", api.CodeMigrationActive)
	no.deny(w.generation != c.generation, api.CodeStaleGeneration)
	no.deny(len(w.holds) > 1, api.CodeMultiattached)
	no.deny(w.deleting, api.CodeVolumeNotAvailable)
	w.move = move{id: c.id, host: c.host, state: api.MigrationStarting}
	switch {
	case len(w.holds) == 0:
		no.deny(c.src != "", api.CodeConflict)
	case len(w.holds) == 1:
		h := w.holds[0]
		no.deny(h.id != c.src, api.CodeConflict)
		no.deny(h.state != api.AttachmentAttached, api.CodeStateForbidden)
		no.deny(h.host != c.host, api.CodeNotYourHost)
		w.move.src, w.move.dst = c.src, c.dst
		w.holds = with(w.holds, hold{id: c.dst, instance: h.instance, host: h.host, state: api.AttachmentReserved, dst: true})
	}
	return w, answer{state: string(api.MigrationStarting)}, no
}

// advance moves a migration on, on the word of its host or of an operator.
func (w world) advance(c call) (world, answer, []api.Code) {
	var no rules
	no.deny(c.kind == advance && w.stale(c), api.CodeStaleEpoch)
	if w.move.id != c.id {
		// It was seen, so it was there, and perhaps another host's.
		no.deny(c.kind == advance, api.CodeNotYourHost)
		return w, answer{}, append(no, api.CodeNoMigration)
	}
	state, to := w.move.state, api.MigrationState(c.to)
	switch c.kind {
	case abandon:
		no.deny(state != api.MigrationOrphaned, api.CodeStateForbidden)
		no.deny(c.keepDst && w.move.before != api.MigrationCompleting && w.move.before != api.MigrationCopied, api.CodeCopyNotVerified)
	default:
		no.deny(w.move.host != c.host, api.CodeNotYourHost)
		no.deny(string(state) != c.from, api.CodeConflict)
		no.deny(to == api.MigrationCompleted && state != api.MigrationCompleting, api.CodeStateForbidden)
	}
	switch to {
	case api.MigrationCompleted:
		w.generation++
		w.keeper = w.move.host
		w.holds = without(w.holds, w.move.src)
		if i := slices.IndexFunc(w.holds, func(h hold) bool { return h.dst }); i >= 0 {
			h := w.holds[i]
			h.dst, h.state = false, api.AttachmentAttached
			w.holds = with(without(w.holds, h.id), h)
		}
		w.move = move{}
	case api.MigrationCancelled:
		w.holds, w.move = without(w.holds, w.move.dst), move{}
	default:
		w.move.state = to
	}
	return w, answer{state: c.to}, no
}

// change is every change of the volume itself.
func (w world) change(c call) (world, answer, []api.Code) {
	var no rules
	no.deny(c.kind != retype && w.stale(c), api.CodeStaleEpoch)
	if w.gone {
		return w, answer{}, append(no, api.CodeNotFound)
	}
	no.deny(c.kind != retype && w.keeper != c.host, api.CodeNotYourHost)
	no.deny(w.move.id != "", api.CodeMigrationActive)
	switch c.kind {
	case retype:
		no.deny(w.deleting, api.CodeVolumeNotAvailable)
		no.deny(w.many != (c.to == manyType) && len(w.holds) > 0, api.CodeInUseRetype)
		w.many = c.to == manyType
	case setStatus:
		no.deny(string(w.status()) != c.from, api.CodeConflict)
		w.deleting = c.to == string(api.VolumeDeleting)
	default:
		no.deny(len(w.holds) > 0, api.CodeVolumeInUse)
		w.gone = true
		return w, answer{}, no
	}
	return w, answer{state: string(w.status())}, no
}

func (w world) fence(c call) (world, answer, []api.Code) {
	w.epochs[c.host]++
	w.fenced[c.host] = true
	if w.move.id != "" && w.move.host == c.host && w.move.state != api.MigrationOrphaned {
		w.move.before, w.move.state = w.move.state, api.MigrationOrphaned
	}
	return w, answer{epoch: w.epochs[c.host]}, nil
}

func (w world) rejoin(c call) (world, answer, []api.Code) {
	if w.epochs[c.host] != c.epoch {
		return w, answer{}, []api.Code{api.CodeStaleEpoch}
	}
	w.fenced[c.host] = false
	if w.move.host == c.host && w.move.state == api.MigrationOrphaned {
		w.move.state, w.move.before = w.move.before, ""
	}
	return w, answer{epoch: c.epoch}, nil
}

// status is that of the volume, as it follows from the rest.
func (w world) status() api.VolumeStatus {
	switch {
	case w.deleting:
		return api.VolumeDeleting
	case len(w.holds) == 0:
		return api.VolumeAvailable
	case slices.ContainsFunc(w.holds, func(h hold) bool { return h.state != api.AttachmentReserved }):
		return api.VolumeInUse
	}
	return api.VolumeReserved
}

// with and without leave what they were given as it is.
func with(holds []hold, h hold) []hold {
	out := append(slices.Clone(holds), h)
	slices.SortFunc(out, func(a, b hold) int { return strings.Compare(a.id, b.id) })
	return out
}

func without(holds []hold, id string) []hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return h.id == id })
}

func (w world) equal(o world) bool {
	return w.gone == o.gone && w.deleting == o.deleting && w.many == o.many && w.keeper == o.keeper && w.generation == o.generation && w.move == o.move &&
		w.epochs == o.epochs && w.fenced == o.fenced && slices.Equal(w.holds, o.holds)
}

// shows reports whether a read may have seen this. It tells neither the states of
// the hosts nor that of the migration.
func (w world) shows(seen world) bool {
	return w.deleting == seen.deleting && w.many == seen.many && w.keeper == seen.keeper && w.generation == seen.generation &&
		w.move.id == seen.move.id && slices.Equal(w.holds, seen.holds)
}

// may reports whether a call in this world may have been answered so, and what the
// world is then.
func (w world) may(c call, a answer) (bool, world) {
	next, want, refusals := w.apply(c)
	switch {
	case a.unknown && len(refusals) > 0:
		return true, w
	case a.unknown:
		return true, next
	case a.code != "":
		return slices.Contains(refusals, a.code), w
	case len(refusals) > 0:
		return false, w
	case c.kind == read:
		return want.seen.shows(*a.seen), w
	}
	return want.state == a.state && want.epoch == a.epoch, next
}

// modelOf is the model of one volume that begins as the world first.
func modelOf(first world) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(state, input, output any) (bool, any) {
			return state.(world).may(input.(call), output.(answer)) //nolint:errcheck // the model's own types
		},
		Equal:             func(a, b any) bool { return a.(world).equal(b.(world)) }, //nolint:errcheck // the model's own types
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}
