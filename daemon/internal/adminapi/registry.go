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

// proxied passes the request on to the registry, which refuses what this host may not do.
func (s *Server) proxied(w http.ResponseWriter, r *http.Request) error {
	if s.CheckRegistry != nil {
		if err := s.CheckRegistry(protocol.RequiredBy(r.Header)); err != nil {
			return err
		}
	}
	s.RegistryProxy.ServeHTTP(w, r)
	return nil
}

// forgetVolume has the registry forget a volume, unless an op of this host creates, deletes or
// resizes it.
func (s *Server) forgetVolume(w http.ResponseWriter, r *http.Request) error {
	vol, err := s.Registry.Volume(r.Context(), r.PathValue("volume"))
	if err == nil && vol.Status != api.VolumeAvailable && vol.Status != api.VolumeInUse {
		return api.Errorf(api.CodeVolumeNotAvailable, "cannot forget volume %s: it is %s; %s", vol.Name, vol.Status, endOf(&vol)).With("status", vol.Status)
	}
	// The registry makes the other checks, also for a repeated request.
	return s.proxied(w, r)
}

// endOf returns how an operator ends the state that keeps a volume from being forgotten. For a
// growing volume it must not propose to delete the image, which has the data.
func endOf(vol *api.Volume) string {
	if vol.Status == api.VolumeResizing {
		return "wait until that is over; if it stands, `volferryctl op list` has the command that goes on with it"
	}
	return "wait until that is over, or delete what there is of its image, too (`" + api.ShellLine("volferryctl", "volume", "delete", vol.Name, "--force") + "`)"
}

// remembered is proxied for a read that the last view can answer, marked as stale, while the
// registry does not.
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
		// The registry may have stopped answering since.
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

// hasBegun reports whether a request asks for a later page of a list, which only the registry has.
func hasBegun(r *http.Request) bool { return r.URL.Query().Get(routes.AfterParameter) != "" }

// readTimeout bounds how long a read waits for the registry before the last view answers it.
const readTimeout = 5 * time.Second

func away(err error) bool { return api.CodeOf(err) == api.CodeRegistryUnavailable }

// fresh first reports this host to the registry, so that the answer is current. If the report
// fails, the registry's own answer shows why.
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

// held is an answer that can be replaced if the registry does not answer.
type held struct {
	http.ResponseWriter
	away bool
	err  error
}

// Unwrap lets http.ResponseController reach the connection.
func (h *held) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// NewRegistryProxy returns a handler that passes requests on to the registry at base through
// transport. The daemon has authorized the caller; to the registry the daemon is the caller. A
// refusal for lack of permission gets the registry's address, where an operator can ask.
func NewRegistryProxy(transport http.RoundTripper, base *url.URL, address string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(base)
			p.Out.Header.Set(api.CallerHeader, whoAsks(p.In.Context())) // it replaces the caller's own header
		},
		Transport: transport,
		// The caller talks to this program, so the answer has this program's announcement.
		ModifyResponse: func(resp *http.Response) error {
			protocol.Remove(resp.Header)
			if resp.StatusCode == http.StatusForbidden {
				return addAddress(resp, address)
			}
			return nil
		},
		FlushInterval: -1, // for streams of events
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(r.Context().Err(), context.Canceled) {
				return // the caller has gone
			}
			e := api.Errorf(api.CodeRegistryUnavailable, "the registry does not answer (%v); is volferry-registry running?", err)
			if why := new(api.Error); errors.As(err, &why) {
				e.Details = why.Details // they report that the change may have been made
			}
			if h, ok := w.(*held); ok {
				h.away, h.err = true, e
				return
			}
			httpjson.WriteError(w, e)
		},
	}
}
