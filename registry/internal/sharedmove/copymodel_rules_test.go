// SPDX-License-Identifier: Apache-2.0

package sharedmove

import "testing"

func TestWithAllRulesNoWriteIsLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*copyModel)
	}{
		{"one host copies the whole volume", func(*copyModel) {}},
		{"three writes", func(m *copyModel) { m.writes = 3 }},
		{"each host copies its share of it", func(m *copyModel) { m.share = [hostCount]uint8{0b101, 0b010} }},
		{"a host that copies nothing of it is first", func(m *copyModel) { m.share = [hostCount]uint8{0, allBlocks} }},
		{"no round before the pause", func(m *copyModel) { m.rounds = 0 }},
		{"two rounds", func(m *copyModel) { m.rounds = 2 }},
		{"with the barrier before the swap as well", func(m *copyModel) { m.endAll = true }},
		{"bitmaps swapped while no write is on its way", func(m *copyModel) { m.swap = drained }},
		{"bit set first, and bitmaps swapped while no write is on its way", func(m *copyModel) { m.swap, m.markFirst = drained, true }},
		{"QEMU and a daemon die", func(m *copyModel) { m.qemuDies, m.daemonDies = true, true }},
		{"a daemon dies", func(m *copyModel) { m.daemonDies = true }},
		{"QEMU dies", func(m *copyModel) { m.qemuDies = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sound()
			c.change(&m)
			wantHolds(t, m)
		})
	}
}

func TestWithoutOneRuleAWriteIsLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*copyModel)
	}{
		{"no barrier between the rounds", func(m *copyModel) { m.swapAll = false }},
		{"a barrier before the swap and none after it", func(m *copyModel) { m.swapAll, m.endAll = false, true }},
		{"old bitmap disabled before the new one is enabled", func(m *copyModel) { m.swap = oldFirst }},
		{"whole copy begun before all bitmaps are on", func(m *copyModel) { m.armAll = false }},
		{"last copy begun before all guests stand still", func(m *copyModel) { m.stopAll = false }},
		{"bit set first, and bitmaps swapped under writes", func(m *copyModel) { m.markFirst = true }},
		{"a bitmap that is missing taken for an empty one", func(m *copyModel) { m.qemuDies, m.missingIsEmpty = true, true }},
		{"copy begun again while a block is in a hand", func(m *copyModel) { m.qemuDies, m.dieInHand = true, true }},
		{"a round whose daemon died taken for done", func(m *copyModel) { m.daemonDies, m.forgetTodo = true, true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sound()
			m.ackedOnly = true
			c.change(&m)
			wantBroken(t, m, lost)
		})
	}
}
