// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

type attachmentAPI struct {
	attachments *store.Attachments
	hosts       *store.Hosts
	shelf       *workflow.Shelf
	forward     *forwarder
	targets     *targets
	refusals    *refusals
}

// remove passes the request to the attachment's host, which checks whether the guest has the disk.
// The registry itself deletes the attachment if no host has the instance or, with force, if the
// host is fenced.
func (s *attachmentAPI) remove(w http.ResponseWriter, r *http.Request) error {
	force, err := boolean(r.URL.Query(), "force")
	if err != nil {
		return err
	}
	if done, err := s.deleteShelved(w, r); done || err != nil {
		return err
	}
	if force {
		done, err := s.forceDelete(w, r)
		if done || err != nil {
			return err
		}
	}
	return relaying(s.forward, ofAttachment[routes.None](s.targets))(w, r)
}

func (s *attachmentAPI) deleteShelved(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	call, err := readCall(r)
	if err != nil {
		return false, err
	}
	done, err = s.forward.shelvedAlone(w, r, call, func(ctx context.Context) (api.Attachment, error) {
		return s.shelf.DeleteAttachment(ctx, call, httpjson.Reference(r))
	})
	if api.CodeOf(err) == api.CodeNotFound && call.Host == nil {
		return false, nil // its host or a migration may know what happened to it
	}
	if err != nil {
		s.refusals.audit(r, err)
	}
	return done, err
}

func (s *attachmentAPI) forceDelete(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	call, err := readCall(r)
	if err != nil {
		return false, err
	}
	if call.Key != "" {
		if _, _, err := s.forward.tasks.Get(r.Context(), call.Key); api.CodeOf(err) != api.CodeNotFound {
			return false, err
		}
	}
	a, err := s.attachments.Get(r.Context(), httpjson.Reference(r), store.Viewer{})
	switch {
	case api.CodeOf(err) == api.CodeNotFound: // this request may have deleted it before
	case err != nil:
		return false, err
	default:
		host, err := s.hosts.Get(r.Context(), a.Host)
		if err != nil || host.Status != api.HostFenced {
			return false, err
		}
	}
	// This takes something away from a host that cannot be asked.
	if err := mayFence(r); err != nil {
		s.refusals.audit(r, err)
		return false, err
	}
	if a, err = s.attachments.ForceDelete(r.Context(), call, httpjson.Reference(r)); err != nil {
		return false, err
	}
	return true, routes.DeleteAttachment.Write(w, http.StatusOK, a)
}

// mayFence refuses operators without the role fence, for requests that need it only in some states.
func mayFence(r *http.Request) error {
	id, ok := mtls.IdentityOf(r.Context())
	if !ok || id.Kind != mtls.KindOperator || id.Role >= httpjson.Fence {
		return nil
	}
	return api.Errorf(api.CodePermissionDenied, "operator %s may not do this: the host of the attachment is fenced, so it asks for the role %s, and the certificate has the role %s", id.Name, httpjson.Fence, id.Role)
}

func (s *attachmentAPI) each(r *http.Request, after string, do ledger.Visit[api.Attachment]) error {
	query := r.URL.Query()
	return s.attachments.Each(r.Context(), store.AttachmentFilter{Volume: query.Get("volume"), Instance: query.Get("instance")}, viewerOf(r), after, do)
}
