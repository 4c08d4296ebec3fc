// SPDX-License-Identifier: Apache-2.0

package op

import (
	"bytes"
	"encoding/json"
)

// event is a record without its op, number and time.
type event struct {
	kind EventKind
	step string
	data json.RawMessage
}

func (e event) is(r Record) bool {
	return r.Kind == e.kind && r.Step == e.step && bytes.Equal(r.Data, e.data)
}
