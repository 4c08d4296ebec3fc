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

// Some calls are this host's or the registry's, by what they are about: an instance
// that is shelved_offloaded is on no host, and what is done to it the registry does.

// taskKey marks the calls that are made for the registry.
type taskKey struct{}

func asTask(ctx context.Context) context.Context { return context.WithValue(ctx, taskKey{}, true) }

// passOn has the registry answer a call. What the registry itself asks for would
// come back, and is refused.
func (s *Server) passOn(w http.ResponseWriter, r *http.Request, why string) error {
	if r.Context().Value(taskKey{}) != nil {
		return api.Errorf(api.CodeNotYourHost, "%s; this is host %s", why, s.HostName)
	}
	return s.proxied(w, r)
}

// decodeAndKeep is httpjson.Decode that leaves the body to be read again, in the
// request that it returns.
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

// onShelf reports whether an instance is on no host. A request that this host has
// begun is this host's, whatever became of the instance since; what cannot be told
// is looked at where it is done.
func (s *Server) onShelf(ctx context.Context, opID, instance string) bool {
	if instance == "" || s.begunHere(ctx, opID) {
		return false
	}
	inst, err := s.Registry.Instance(ctx, instance)
	return err == nil && inst.State == api.InstanceShelvedOffloaded
}

// ofShelf says the same of the instance of an attachment.
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
