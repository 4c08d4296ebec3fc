// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// proxied passes the request on to the registry, which answers it.
func (s *Server) proxied(w http.ResponseWriter, r *http.Request) error {
	s.RegistryProxy.ServeHTTP(w, r)
	return nil
}

// fresh tells the registry of this host first, so that what it answers is true
// now. A registry that is away says so in its own answer.
func (s *Server) fresh(next func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.Uplink.Refresh(r.Context()); err != nil {
			return err
		}
		return next(w, r)
	}
}

// NewRegistryProxy passes requests on to the registry at a Unix socket. The
// daemon has checked the caller; the registry sees the daemon.
func NewRegistryProxy(socket string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "registry"
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			},
		},
		FlushInterval: -1, // streams of events
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			httpjson.WriteError(w, api.Errorf(api.CodeRegistryUnavailable, "the registry does not answer at %s (%v); is volferry-registry running?", socket, err))
		},
	}
}
