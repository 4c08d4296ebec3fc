// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// byInstance begins an op of an instance that needs to know nothing but which.
func (s *Server) byInstance(begin func(ctx context.Context, opID, instance string) (api.Instance, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := opID(r)
		if err != nil {
			return err
		}
		inst, err := begin(r.Context(), id, r.PathValue("instance"))
		if err != nil {
			return err
		}
		return s.begun(w, r, id, httpjson.Noun{Name: "instance", Value: inst})
	}
}

func (s *Server) stopInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceStop
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	return s.byInstance(func(ctx context.Context, opID, instance string) (api.Instance, error) {
		return s.Instances.BeginStop(ctx, opID, instance, in)
	})(w, r)
}

func (s *Server) shelveInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceShelve
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	return s.byInstance(func(ctx context.Context, opID, instance string) (api.Instance, error) {
		return s.Instances.BeginShelve(ctx, opID, instance, in)
	})(w, r)
}

// unshelveInstance brings the instance to this host. To another one the registry
// does: it has to ask that.
func (s *Server) unshelveInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceUnshelve
	r, err := decodeAndKeep(r, &in)
	if err != nil {
		return err
	}
	if in.Host != "" && in.Host != s.HostID && in.Host != s.HostName {
		return s.passOn(w, r, "instance "+r.PathValue("instance")+" is to be on host "+in.Host)
	}
	return s.byInstance(s.Instances.BeginUnshelve)(w, r)
}
