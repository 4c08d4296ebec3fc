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

// remembered passes a read on to the registry, as proxied does. While the registry does not
// answer, it answers from the last view, marked as stale.
func remembered[Out any](s *Server, route routes.Route[routes.None, Out], lookup cached[Out]) httpjson.Route {
	return route.ServedByDaemon(func(w http.ResponseWriter, r *http.Request) error {
		if hasBegun(r) {
			return s.passing().proxied(w, r)
		}
		if why := s.Uplink.Err(); why != nil && away(why) {
			if done, err := stale(s, w, r, route, lookup); done || err != nil {
				return err
			}
		}
		// The registry may have stopped answering.
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

const readTimeout = 5 * time.Second

type held struct {
	http.ResponseWriter
	away bool
	err  error
}

// Unwrap lets http.ResponseController reach the connection.
func (h *held) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// NewRegistryProxy returns a handler that passes requests on to the registry at base. The daemon
// has authorized the caller; for the registry, the daemon is the caller. If the registry denies
// permission, the answer has the registry's address, so that the operator can ask there.
func NewRegistryProxy(transport http.RoundTripper, base *url.URL, address string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(base)
			p.Out.Header.Set(api.CallerHeader, whoAsks(p.In.Context())) // it replaces the caller's header
		},
		Transport: transport,
		// The caller's connection is to this program, so the answer has this program's
		// announcement.
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
				e.Details = why.Details // for example that the change may have been made
			}
			if h, ok := w.(*held); ok {
				h.away, h.err = true, e
				return
			}
			httpjson.WriteError(w, e)
		},
	}
}
