// SPDX-License-Identifier: Apache-2.0

package op

import (
	"bytes"
	"encoding/json"
)

type event struct {
	kind EventKind
	step string
	data json.RawMessage
}

func (e event) is(r Record) bool {
	return r.Kind == e.kind && r.Step == e.step && bytes.Equal(r.Data, e.data)
}
