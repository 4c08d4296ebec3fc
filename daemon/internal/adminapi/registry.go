// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
)

// proxied passes the request on to the registry, which answers it: as the
// registry sees this host, so that what the host may not do is refused there.
func (s *Server) proxied(w http.ResponseWriter, r *http.Request) error {
	if s.CheckRegistry != nil {
		if err := s.CheckRegistry(protocol.RequiredBy(r.Header)); err != nil {
			return err
		}
	}
	s.RegistryProxy.ServeHTTP(w, r)
	return nil
}

// forgetVolume has the registry forget a volume, unless an op of this host is making
// or deleting it.
func (s *Server) forgetVolume(w http.ResponseWriter, r *http.Request) error {
	vol, err := s.Registry.Volume(r.Context(), r.PathValue("volume"))
	if err == nil && vol.Status != api.VolumeAvailable && vol.Status != api.VolumeInUse {
		return api.Errorf(api.CodeVolumeNotAvailable, "cannot forget volume %s: it is %s; %s", vol.Name, vol.Status, endOf(&vol)).With("status", vol.Status)
	}
	// What else may be said of it is the registry's to say, also that it was forgotten
	// by this very request before.
	return s.proxied(w, r)
}

// endOf is how an operator ends what keeps a volume from being forgotten. The image of one that
// grows has its data.
func endOf(vol *api.Volume) string {
	if vol.Status == api.VolumeResizing {
		return "wait until that is over; if it stands, `volferryctl op list` has the command that goes on with it"
	}
	return "wait until that is over, or delete what there is of its image, too (`" + api.ShellLine("volferryctl", "volume", "delete", vol.Name, "--force") + "`)"
}

// remembered is proxied for a read that can be answered from what the registry last
// said. It is, marked as stale, while the registry is away.
func remembered[Out any](s *Server, route routes.Route[routes.None, Out], lookup cached[Out]) httpjson.Route {
	return route.ServedByDaemon(func(w http.ResponseWriter, r *http.Request) error {
		if hasBegun(r) {
			return s.proxied(w, r)
		}
		if why := s.Uplink.Err(); why != nil && away(why) {
			if done, err := stale(s, w, r, route, lookup); done || err != nil {
				return err
			}
		}
		// It may be away, or hang, without that being known yet.
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		answer := &held{ResponseWriter: w}
		s.RegistryProxy.ServeHTTP(answer, r.WithContext(ctx))
		if !answer.away {
			return nil
		}
		done, err := stale(s, w, r, route, lookup)
		if done || err != nil {
			return err
		}
		return answer.err
	})
}

// hasBegun reports whether a request asks for a page that is not the first one. The registry alone
// has the rest of a list that it has begun.
func hasBegun(r *http.Request) bool { return r.URL.Query().Get(routes.AfterParameter) != "" }

// readTimeout is how long a read waits for the registry before it is answered
// from what is remembered.
const readTimeout = 5 * time.Second

func away(err error) bool { return api.CodeOf(err) == api.CodeRegistryUnavailable }

// fresh tells the registry of this host first, so that what it answers is true
// now. A registry that is away, or has fenced this host, says so in its own
// answer.
func (s *Server) fresh(route httpjson.Route) httpjson.Route {
	next := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		if s.Uplink.Err() == nil && !hasBegun(r) {
			_ = s.Uplink.Refresh(r.Context())
		}
		return next(w, r)
	}
	return route
}

// held is an answer whose sender may say instead that the registry is away.
type held struct {
	http.ResponseWriter
	away bool
	err  error
}

// Unwrap lets http.ResponseController reach the connection.
func (h *held) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// NewRegistryProxy returns a handler that passes requests on to the registry at base by
// transport. The daemon has checked the caller; to the registry the daemon is the caller. A
// refusal that is about who asks gets the address of the registry, where an operator asks.
func NewRegistryProxy(transport http.RoundTripper, base *url.URL, address string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(base)
			p.Out.Header.Set(api.CallerHeader, whoAsks(p.In.Context())) // whatever the caller says of itself
		},
		Transport: transport,
		// Who asked is answered by this program, and shown what this one is.
		ModifyResponse: func(resp *http.Response) error {
			protocol.Remove(resp.Header)
			if resp.StatusCode == http.StatusForbidden {
				return addAddress(resp, address)
			}
			return nil
		},
		FlushInterval: -1, // streams of events
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(r.Context().Err(), context.Canceled) {
				return // nobody is there to be told
			}
			e := api.Errorf(api.CodeRegistryUnavailable, "the registry does not answer (%v); is volferry-registry running?", err)
			if why := new(api.Error); errors.As(err, &why) {
				e.Details = why.Details // that it may have been done
			}
			if h, ok := w.(*held); ok {
				h.away, h.err = true, e
				return
			}
			httpjson.WriteError(w, e)
		},
	}
}
