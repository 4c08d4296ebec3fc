// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/volferry/volferry/internal/api"
)

// told is one operation of a history that was made up. Open is one whose outcome
// nobody learnt.
type told struct {
	from, to int64
	open     bool
	call     call
	answer   answer
}

func linearizable(first world, operations ...told) bool {
	var all []porcupine.Operation
	for i, o := range operations {
		if o.open {
			o.to, o.answer.unknown = math.MaxInt64, true
		}
		all = append(all, porcupine.Operation{ClientId: i, Input: o.call, Call: o.from, Output: o.answer, Return: o.to})
	}
	return porcupine.CheckOperations(modelOf(first), all)
}

// The calls of the made up histories: two hosts that want one volume, and the
// migration that the first of them begins.
var (
	free     = world{generation: 1, epochs: [hostCount]int64{1, 1, 1}}
	attachA  = call{kind: reserve, host: 0, epoch: 1, generation: 1, id: "a", instance: "at-a"}
	attachB  = call{kind: reserve, host: 1, epoch: 1, generation: 1, id: "b", instance: "at-b"}
	connectA = call{kind: step, host: 0, epoch: 1, id: "a", from: "reserved", to: "attaching"}
	moveFree = call{kind: migrate, host: 0, epoch: 1, generation: 1, id: "m"}
	fenceA   = call{kind: fenceHost, host: 0}
	look     = call{kind: read}
)

func did(state api.AttachmentState) answer { return answer{state: string(state)} }

// inUse is how the loser of two is refused.
var inUse = answer{code: api.CodeVolumeInUse}

// attachedTo is a world in which host 0 has the volume attached.
func attachedTo(many bool) world {
	w := free
	w.many = many
	w.holds = []hold{{id: "a", instance: "at-a", host: 0, state: api.AttachmentAttached}}
	return w
}

// A model that takes every history proves nothing.
func TestTheModelRefusesHistoriesThatAreWrong(t *testing.T) {
	moveA := call{kind: migrate, host: 0, epoch: 1, generation: 1, id: "m", src: "a", dst: "d"}
	reserved := did(api.AttachmentReserved)
	starting := answer{state: string(api.MigrationStarting)}
	moving, _, _ := attachedTo(true).apply(moveA)
	for name, tc := range map[string]struct {
		first      world
		operations []told
	}{
		"both have an exclusive volume": {free, []told{
			{from: 1, to: 4, call: attachA, answer: reserved}, {from: 2, to: 3, call: attachB, answer: reserved},
		}},
		"nobody gets a free volume": {free, []told{
			{from: 1, to: 4, call: attachA, answer: inUse}, {from: 2, to: 3, call: attachB, answer: inUse},
		}},
		"attach and migrate both win": {attachedTo(true), []told{
			{from: 1, to: 4, call: attachB, answer: reserved}, {from: 1, to: 4, call: moveA, answer: starting},
		}},
		"refused with another rule's code": {attachedTo(true), []told{
			{from: 1, to: 2, call: moveA, answer: starting}, {from: 3, to: 4, call: attachB, answer: inUse},
		}},
		"an answer is lost": {free, []told{
			{from: 1, to: 2, call: attachA, answer: reserved}, {from: 3, to: 4, call: look, answer: answer{seen: &free}},
		}},
		"half of a migration is there": {moving, []told{
			{from: 1, to: 2, call: look, answer: answer{seen: func() *world {
				w := moving
				w.holds = attachedTo(true).holds
				return &w
			}()}},
		}},
		"a step before its attachment": {free, []told{
			{from: 1, to: 2, call: connectA, answer: did(api.AttachmentAttaching)}, {from: 3, to: 4, call: attachA, answer: reserved},
		}},
		"an older state is read later": {free, []told{
			{from: 1, to: 2, call: attachA, answer: reserved},
			{from: 3, to: 4, call: connectA, answer: did(api.AttachmentAttaching)},
			{from: 5, to: 6, call: look, answer: answer{seen: &world{generation: 1, holds: []hold{{id: "a", instance: "at-a", state: api.AttachmentReserved}}}}},
		}},
		"a fenced host goes on": {free, []told{
			{from: 1, to: 2, call: fenceA, answer: answer{epoch: 2}}, {from: 3, to: 4, call: attachA, answer: reserved},
		}},
		"a fence gives an epoch twice": {free, []told{
			{from: 1, to: 4, call: fenceA, answer: answer{epoch: 2}}, {from: 2, to: 3, call: fenceA, answer: answer{epoch: 2}},
		}},
		"a generation comes back": {free, []told{
			{from: 1, to: 2, call: moveFree, answer: starting},
			{from: 3, to: 4, call: call{kind: advance, epoch: 1, id: "m", from: "starting", to: "completing"}, answer: answer{state: "completing"}},
			{from: 5, to: 6, call: call{kind: advance, epoch: 1, id: "m", from: "completing", to: "completed"}, answer: answer{state: "completed"}},
			{from: 7, to: 8, call: attachA, answer: reserved},
		}},
		"a lost answer was a refusal and is seen done": {attachedTo(false), []told{
			{from: 1, open: true, call: attachB},
			{from: 3, to: 4, call: look, answer: answer{seen: func() *world {
				w := attachedTo(false)
				w.holds = with(w.holds, hold{id: "b", instance: "at-b", host: 1, state: api.AttachmentReserved})
				return &w
			}()}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if linearizable(tc.first, tc.operations...) {
				t.Error("the model finds an order for it")
			}
		})
	}
}

func TestTheModelTakesHistoriesThatAreRight(t *testing.T) {
	reserved := did(api.AttachmentReserved)
	taken, _, _ := free.apply(attachA)
	for name, operations := range map[string][]told{
		"one of two wins": {
			{from: 1, to: 4, call: attachA, answer: inUse}, {from: 2, to: 3, call: attachB, answer: reserved},
		},
		"a lost answer was done": {
			{from: 1, open: true, call: attachA}, {from: 2, to: 3, call: look, answer: answer{seen: &taken}},
		},
		"a lost answer is done much later": {
			{from: 1, open: true, call: attachA},
			{from: 2, to: 3, call: look, answer: answer{seen: &free}},
			{from: 4, to: 5, call: look, answer: answer{seen: &taken}},
		},
		"a lost answer was never done": {
			{from: 1, open: true, call: attachA}, {from: 2, to: 3, call: attachB, answer: reserved},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !linearizable(free, operations...) {
				t.Error("the model finds no order for it")
			}
		})
	}
}
