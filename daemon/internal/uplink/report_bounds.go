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

// What parts of a report have together, in bytes. The registry refuses a request of more than
// httpjson.MaxBodyBytes, and a host whose reports are refused looks dead.
const (
	maxUses  = 192 << 10 // the uses of all pools
	maxNotes = 128 << 10 // the notes of all instances
)

// boundUses sorts the uses of each pool, and cuts what the report has no room for. It says how many
// it has cut.
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

// usesThatFit returns how many of these uses, one less than are allowed if there are more, have so
// many bytes in a report.
func usesThatFit(uses []api.PoolUse, bytes int) int {
	for i := range uses {
		bytes -= encodedBytes(&uses[i])
		if bytes < 0 || i == api.MaxPoolUses-1 && len(uses) > api.MaxPoolUses {
			return i
		}
	}
	return len(uses)
}

// boundNotes cuts the notes of instances to an equal length, if the report has no room for them
// all. Doctor says them whole.
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

// encodedBytes returns how many bytes a part of a report has in it.
func encodedBytes(part any) int {
	encoded, err := json.Marshal(part)
	if err != nil {
		return math.MaxInt32
	}
	return len(encoded) + len(",")
}
