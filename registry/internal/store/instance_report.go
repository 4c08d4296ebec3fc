// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"unicode/utf8"

	"github.com/volferry/volferry/internal/api"
)

// maxNote bounds, in characters, what a host says of an instance.
const maxNote = 1000

func checkInstanceNote(note string) error {
	if utf8.RuneCountInString(note) > maxNote {
		return invalid("the note of an instance is longer than %d characters", maxNote)
	}
	return checkPrintable("note of an instance", note)
}

// isShelved says whether an instance in this state is on the shelf, where only
// TransitionInstance moves it.
func isShelved(state api.InstanceState) bool {
	return state == api.InstanceShelved || state == api.InstanceShelvedOffloaded
}

// storeInstanceReport takes what a host says of an instance of its own. No report
// puts one on the shelf or takes it from there.
func (tx *changeTx) storeInstanceReport(ctx context.Context, hostID string, i api.InstanceReport) error {
	if err := tx.exec(ctx, "UPDATE instances SET note = ?, updated_us = ? WHERE id = ? AND host_id = ? AND state <> 'shelved_offloaded' AND note <> ?1",
		i.Note, tx.at.UnixMicro(), i.ID, hostID); err != nil || isShelved(i.State) {
		return err
	}
	return tx.exec(ctx, "UPDATE instances SET state = ?, updated_us = ? WHERE id = ? AND host_id = ? AND state NOT IN (?1, 'shelved', 'shelved_offloaded')",
		i.State, tx.at.UnixMicro(), i.ID, hostID)
}
