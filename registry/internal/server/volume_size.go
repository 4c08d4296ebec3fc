// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/store"
)

// setSize gives a volume the requested size, after a host that reaches the image has reported it.
func (s *volumeAPI) setSize(r *http.Request, call store.Call, in api.VolumeSize) (none api.Volume, err error) {
	if err := in.Check(); err != nil {
		return none, err
	}
	ctx := r.Context()
	v, err := s.volumes.Get(ctx, httpjson.Reference(r), store.Viewer{})
	if err != nil {
		return none, err
	}
	if err := store.CheckSetSize(v, in); err != nil {
		return none, err
	}
	host, err := s.targets.placement.VolumeAt(ctx, v, in.Host)
	if err != nil {
		return none, err
	}
	seen, err := askHost(ctx, s.forward.relay, call.Who, host, routes.ShowVolumeImage, v.ID)
	if err != nil {
		return none, err
	}
	return s.volumes.SetSize(ctx, call, v, in, store.SeenImage{Host: host.Name, VolumeImage: seen})
}
