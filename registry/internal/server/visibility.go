// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

type hostAPI struct {
	hosts    *store.Hosts
	reports  *store.Reports
	pools    *store.Pools
	relay    *relay.Relay
	refusals *refusals
}

// A host sees only itself and its own pools. The store checks ownership of all other objects.

func (s *hostAPI) list(ctx context.Context, as store.Viewer) ([]api.Host, error) {
	all, err := s.hosts.All(ctx)
	if as.HostID != "" {
		all = slices.DeleteFunc(all, func(h api.Host) bool { return h.ID != as.HostID })
	}
	for i := range all {
		fillAnnounced(s.relay, &all[i])
	}
	return all, err
}

func (s *hostAPI) show(ctx context.Context, ref string, as store.Viewer) (api.Host, error) {
	h, err := s.hosts.Get(ctx, ref)
	if err == nil && as.HostID != "" && h.ID != as.HostID {
		return api.Host{}, api.Errorf(api.CodeNotYourHost, "the host %s is not the one that you are", h.Name)
	}
	fillAnnounced(s.relay, &h)
	return h, err
}

func (s *hostAPI) listPools(ctx context.Context, as store.Viewer) ([]api.Pool, error) {
	all, err := s.pools.All(ctx)
	if err != nil || as.HostID == "" {
		return all, err
	}
	h, err := s.hosts.Get(ctx, as.HostID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p api.Pool) bool { return p.Host != h.Name }), nil
}

// showPool answers with a pool of the host in the query, or of the only host that has it. For a
// host, the default is its own pool.
func (s *hostAPI) showPool(r *http.Request, query url.Values) (api.Pool, error) {
	ref := query.Get(hostParameter)
	if own := viewerOf(r).HostID; own != "" {
		if ref == "" {
			ref = own
		}
		if _, err := s.show(r.Context(), ref, viewerOf(r)); err != nil {
			return api.Pool{}, err
		}
	}
	return s.pools.Get(r.Context(), r.PathValue("pool"), ref)
}
