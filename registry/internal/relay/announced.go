// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
)

// Announced notes what the daemon of a host has announced in one of its own requests.
func (r *Relay) Announced(hostID string, a protocol.Announcement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.host(hostID).announced = &a
}

// Announcement returns what the daemon of a host announced last, and false if it has
// announced nothing since the start.
func (r *Relay) Announcement(hostID string) (protocol.Announcement, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.hosts[hostID]; h != nil && h.announced != nil {
		return *h.announced, true
	}
	return protocol.Announcement{}, false
}

// With returns the request with a body, and with the features that a host needs for that
// body.
func (r Request) With(body any) (Request, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return r, fmt.Errorf("encode request: %w", err)
	}
	r.Body, r.Needs = text, protocol.Needs(body)
	return r, nil
}

// refusal is the answer to a request that needs what its host does not have, nil if it has
// all. It is the host's answer, given for it: nothing is sent there, and nothing is tried again
// until somebody asks anew.
func (r *Relay) refusal(req Request) *api.TaskAnswer {
	host, known := r.Announcement(req.HostID)
	if !known {
		return nil // the host is not there
	}
	err := host.Check("the daemon of host "+req.HostName, req.Needs)
	if err == nil {
		return nil
	}
	body, encodeErr := json.Marshal(api.ErrorBody{Error: api.AsError(err)})
	if encodeErr != nil {
		body = []byte(`{}`)
	}
	return &api.TaskAnswer{Status: api.CodeOf(err).HTTPStatus(), Body: body}
}
