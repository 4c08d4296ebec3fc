// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
)

func fillAnnounced(hosts *relay.Relay, h *api.Host) {
	if a, known := hosts.Announcement(h.ID); known {
		h.Protocol, h.Lacks = a.Protocol, a.LacksOfOurs()
	}
}

// versionsCheck warns of hosts with other versions. A host that lacks features only gets requests
// that do not need them.
func (s *statusAPI) versionsCheck(ctx context.Context) (api.Check, error) {
	check := api.Check{Name: "versions", Status: checkOK, Message: "registry and hosts are of one version"}
	hosts, err := s.Store.Hosts.All(ctx)
	if err != nil {
		return check, err
	}
	var others []string
	for i := range hosts {
		h := &hosts[i]
		fillAnnounced(s.Relay, h)
		if h.Version == s.Version && len(h.Lacks) == 0 {
			continue
		}
		text := h.Name + " " + h.Version
		if len(h.Lacks) > 0 {
			check.Status = checkWarn
			check.Advice = "upgrade the hosts that lack something: what needs it is refused there"
			text += ", which lacks " + strings.Join(h.Lacks, ", ")
		}
		others = append(others, text)
	}
	if len(others) > 0 {
		check.Message = fmt.Sprintf("the registry is %s; %s of another version: %s", s.Version, counted(len(others), "host is", "hosts are"), strings.Join(others, "; "))
	}
	return check, nil
}
