// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/volferry/volferry/internal/api"
)

func (s *statusAPI) duplicateChecks(ctx context.Context) (checks []api.Check) {
	for _, id := range s.Relay.DuplicateSessions() {
		name := id
		if h, err := s.Store.Hosts.Get(ctx, id); err == nil {
			name = h.Name
		}
		checks = append(checks, api.Check{
			Name: "daemons of " + name, Status: checkFail, Message: "two work as this host, which is asked for nothing while both do",
			Advice: "a machine or its certificate was copied: give one of the two a certificate and a host id of its own, or turn it off",
		})
	}
	return checks
}
