// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
)

// The object of a call decides whether this host or the registry serves the call: no host has a
// shelved_offloaded instance.

type taskKey struct{}

func asTask(ctx context.Context) context.Context { return context.WithValue(ctx, taskKey{}, true) }

type passing struct {
	registry Registry
	proxy    http.Handler
	// check, if not nil, refuses requests that need features which the registry lacks.
	check    func(needs []string) error
	uplink   *uplink.Uplink
	runner   *op.Runner
	hostName string
}

// passOn passes a call on to the registry. It refuses a call from the registry, because the
// registry would send it back.
func (s *passing) passOn(w http.ResponseWriter, r *http.Request, why string) error {
	if r.Context().Value(taskKey{}) != nil {
		return api.Errorf(api.CodeNotYourHost, "%s; this is host %s", why, s.hostName)
	}
	return s.proxied(w, r)
}

// decodeAndKeep decodes the body as httpjson.Decode does. The body of the returned request can be
// read again.
func decodeAndKeep(r *http.Request, v any) (*http.Request, error) {
	var read bytes.Buffer
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(io.TeeReader(r.Body, &read))
	if err := httpjson.Decode(again, v); err != nil {
		return r, err
	}
	again.Body, again.ContentLength = io.NopCloser(&read), int64(read.Len())
	return again, nil
}

// onShelf reports whether no host has the instance. It returns false for a request that this host
// has already begun, and if the state is unknown; then the handler checks it.
func (s *passing) onShelf(ctx context.Context, opID, instance string) bool {
	if instance == "" || s.begunHere(ctx, opID) {
		return false
	}
	inst, err := s.registry.Instance(ctx, instance)
	return err == nil && inst.State == api.InstanceShelvedOffloaded
}

func (s *passing) ofShelf(ctx context.Context, opID, attachment string) bool {
	if s.begunHere(ctx, opID) {
		return false
	}
	att, err := s.registry.Attachment(ctx, attachment)
	return err == nil && att.Host == "" && s.onShelf(ctx, opID, att.InstanceID)
}

func (s *passing) begunHere(ctx context.Context, opID string) bool {
	known, err := request.Known(ctx, s.runner, opID)
	return known && err == nil
}

// proxied passes the request on to the registry, which refuses requests that this host may not
// make.
func (s *passing) proxied(w http.ResponseWriter, r *http.Request) error {
	if s.check != nil {
		if err := s.check(protocol.RequiredBy(r.Header)); err != nil {
			return err
		}
	}
	s.proxy.ServeHTTP(w, r)
	return nil
}

// fresh makes a route report this host to the registry first, so that the answer is current.
func (s *passing) fresh(route httpjson.Route) httpjson.Route {
	next := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		if s.uplink.Err() == nil && !hasBegun(r) {
			_ = s.uplink.Refresh(r.Context())
		}
		return next(w, r)
	}
	return route
}

func hasBegun(r *http.Request) bool { return r.URL.Query().Get(routes.AfterParameter) != "" }

func away(err error) bool { return api.CodeOf(err) == api.CodeRegistryUnavailable }
