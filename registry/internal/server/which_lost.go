// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/store"
)

// which asks the host of a volume which copy has every write. If the host is fenced, the answer
// has only the registry's own knowledge and names no copy.
func (s *volumeAPI) which(route httpjson.Route) httpjson.Route {
	ask := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		v, err := s.volumes.Get(r.Context(), httpjson.Reference(r), store.Viewer{})
		if err != nil {
			return err
		}
		host, lost, err := s.targets.placement.Lost(r.Context(), v)
		if err != nil {
			return err
		}
		if !lost {
			return ask(w, r)
		}
		known, err := s.knownOfLost(r.Context(), v, host)
		if err != nil {
			return err
		}
		return routes.ShowWhich.Write(w, http.StatusOK, api.Which{VolumeID: v.ID, Registry: &v.Location, Explanation: known})
	}
	return route
}

func (s *volumeAPI) knownOfLost(ctx context.Context, v api.Volume, host api.Host) (string, error) {
	heard := "never heard of"
	if host.LastSeenAt != nil {
		heard = "last heard of at " + host.LastSeenAt.UTC().Format(time.RFC3339)
	}
	text := fmt.Sprintf("host %s, which has the volume, is fenced (%s): nobody can look at the image, the guest or the journal there; "+
		"by the registry alone the volume is at %s", host.Name, heard, v.Location.Path)
	for i := range v.Attachments {
		a := &v.Attachments[i]
		text += fmt.Sprintf("; %s to instance %s as %s", a.State, cmp.Or(a.InstanceName, a.InstanceID), a.Device)
	}
	if v.MigrationID == "" {
		return text, nil
	}
	m, err := s.migrations.Get(ctx, v.MigrationID, store.Viewer{})
	if err != nil {
		return "", err
	}
	return text + fmt.Sprintf("; migration %s from %s to %s is %s, and what the guest wrote since it began may be in either, or in the overlay on that host",
		m.ID, m.Src.Path, m.Dst.Path, m.State), nil
}
