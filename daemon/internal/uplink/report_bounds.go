// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// The limits of a report's parts, in bytes. The registry refuses a report of more than
// httpjson.MaxBodyBytes, and the host then appears dead.
const (
	maxUses  = 192 << 10 // the uses of all pools
	maxNotes = 128 << 10 // the notes of all instances
)

// boundUses sorts and truncates each pool's uses. The first entry then has the number of omitted
// uses.
func boundUses(pools []api.Pool) {
	for i := range pools {
		p := &pools[i]
		slices.SortFunc(p.Uses, api.PoolUse.Compare)
		p.Uses = slices.Compact(p.Uses)
		fit := usesThatFit(p.Uses, maxUses/len(pools))
		if cut := len(p.Uses) - fit; cut > 0 {
			more := api.PoolUse{Unknown: fmt.Sprintf("the report of the host has no room for %d more", cut)}
			p.Uses = slices.Insert(slices.Clip(p.Uses[:fit]), 0, more)
		}
	}
}

// usesThatFit returns how many uses fit into this size and into api.MaxPoolUses entries. If there
// are too many entries, it leaves room for the entry with the number of omitted uses.
func usesThatFit(uses []api.PoolUse, bytes int) int {
	for i := range uses {
		bytes -= encodedBytes(&uses[i])
		if bytes < 0 || i == api.MaxPoolUses-1 && len(uses) > api.MaxPoolUses {
			return i
		}
	}
	return len(uses)
}

// boundNotes truncates the notes to an equal length if together they are too long. Doctor prints
// them in full.
func boundNotes(reports []api.InstanceReport) {
	all, noted := 0, 0
	for i := range reports {
		if reports[i].Note != "" {
			all += encodedBytes(reports[i].Note)
			noted++
		}
	}
	if all <= maxNotes {
		return
	}
	for i := range reports {
		note := reports[i].Note
		for note != "" && encodedBytes(note) > maxNotes/noted {
			note = note[:len(note)*3/4]
		}
		reports[i].Note = strings.ToValidUTF8(note, "")
	}
}

func encodedBytes(part any) int {
	encoded, err := json.Marshal(part)
	if err != nil {
		return math.MaxInt32
	}
	return len(encoded) + len(",")
}
