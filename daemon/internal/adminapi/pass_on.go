// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// The object of a call decides whether this host or the registry serves it: no host has a
// shelved_offloaded instance, so the registry serves its calls.

// taskKey marks calls made for the registry.
type taskKey struct{}

func asTask(ctx context.Context) context.Context { return context.WithValue(ctx, taskKey{}, true) }

// passOn passes a call on to the registry. It refuses a call from the registry itself, which would
// come back.
func (s *Server) passOn(w http.ResponseWriter, r *http.Request, why string) error {
	if r.Context().Value(taskKey{}) != nil {
		return api.Errorf(api.CodeNotYourHost, "%s; this is host %s", why, s.HostName)
	}
	return s.proxied(w, r)
}

// decodeAndKeep is httpjson.Decode, but keeps the body readable in the returned request.
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
// has already begun, and if the state is unknown: then the handler checks it.
func (s *Server) onShelf(ctx context.Context, opID, instance string) bool {
	if instance == "" || s.begunHere(ctx, opID) {
		return false
	}
	inst, err := s.Registry.Instance(ctx, instance)
	return err == nil && inst.State == api.InstanceShelvedOffloaded
}

// ofShelf is onShelf for the instance of an attachment.
func (s *Server) ofShelf(ctx context.Context, opID, attachment string) bool {
	if s.begunHere(ctx, opID) {
		return false
	}
	att, err := s.Registry.Attachment(ctx, attachment)
	return err == nil && att.Host == "" && s.onShelf(ctx, opID, att.InstanceID)
}

func (s *Server) begunHere(ctx context.Context, opID string) bool {
	known, err := request.Known(ctx, s.Runner, opID)
	return known && err == nil
}
