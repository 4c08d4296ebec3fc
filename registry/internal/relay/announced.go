// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
)

// Announced records what a host's daemon has announced in one of its own requests.
func (r *Relay) Announced(hostID string, a protocol.Announcement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.host(hostID).announced = &a
}

// Announcement returns the last announcement of a host's daemon, false if there was none since the
// start.
func (r *Relay) Announcement(hostID string) (protocol.Announcement, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.hosts[hostID]; h != nil && h.announced != nil {
		return *h.announced, true
	}
	return protocol.Announcement{}, false
}

// With returns the request with this body, and with the features that the host needs for it.
func (r Request) With(body any) (Request, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return r, fmt.Errorf("encode request: %w", err)
	}
	r.Body, r.Needs = text, protocol.Needs(body)
	return r, nil
}

// refusal returns the answer to a request that needs features which its host lacks, nil if it
// lacks none. The registry then does not send the request.
func (r *Relay) refusal(req Request) *api.TaskAnswer {
	host, known := r.Announcement(req.HostID)
	if !known {
		return nil // the host is not connected
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
