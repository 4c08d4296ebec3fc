// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// shelvedOr returns a route that changes an attachment: by shelved, without an op, if no host has
// the instance, else by the instance's host. A request that was passed to a host before goes there
// again.
func shelvedOr[In any](f *forwarder, route routes.Route[In, api.Attachment], shelved func(context.Context, store.Call, string, In) (api.Attachment, error), find finder[In]) httpjson.Route {
	return route.ServedByRegistry(func(w http.ResponseWriter, r *http.Request) error {
		call, err := readCall(r)
		if err != nil {
			return err
		}
		in, body, err := readBody[In](r)
		if err != nil {
			return err
		}
		done, err := f.shelvedAlone(w, r, call, func(ctx context.Context) (api.Attachment, error) {
			return shelved(ctx, call, httpjson.Reference(r), in)
		})
		if done || err != nil {
			return err
		}
		return f.pass(w, r, asAsked(r, "", body), call.Key, resolving(r, "", in, find))
	})
}

// shelvedAlone answers with the result of do, if no host has the attachment's instance. Otherwise
// done is false, and a host's request is refused, because hosts change attachments themselves.
func (s *forwarder) shelvedAlone(w http.ResponseWriter, r *http.Request, call store.Call, do func(context.Context) (api.Attachment, error)) (done bool, err error) {
	asked, err := s.isTask(r, call)
	if asked || err != nil {
		return false, err
	}
	a, err := do(r.Context())
	switch {
	case err == nil:
		return true, routes.AttachVolume.Write(w, http.StatusOK, a)
	case !errors.Is(err, workflow.ErrOnHost):
		return false, err
	case call.Host != nil:
		return false, api.Errorf(api.CodeConflict, "a host has the instance: its own daemon attaches volumes to it and detaches them")
	}
	return false, nil
}

// isTask reports whether a request was passed to a host before. Hosts' requests never are.
func (s *forwarder) isTask(r *http.Request, call store.Call) (bool, error) {
	if call.Key == "" || call.Host != nil {
		return false, nil
	}
	task, _, err := s.tasks.Get(r.Context(), call.Key)
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return err == nil && task.State != api.TaskWithdrawn, err
}
