// SPDX-License-Identifier: Apache-2.0

package relaytest

import (
	"encoding/json"

	"github.com/volferry/volferry/internal/api"
)

// Document returns an answer of a host's API with these nouns.
func Document(nouns map[string]any) json.RawMessage {
	nouns["schema_version"] = api.SchemaVersion
	return encode(nouns)
}

// Refuse returns a refusal by a host's API.
func Refuse(code api.Code) api.TaskAnswer {
	return api.TaskAnswer{Status: code.HTTPStatus(), Body: encode(api.ErrorBody{Error: api.Errorf(code, "refused as %s", code)})}
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
