// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

func (s *Server) attachVolume(w http.ResponseWriter, r *http.Request) error {
	var in api.VolumeAttach
	return s.atInstance(w, r, &in, &in.Instance, func(ctx context.Context, opID, volume string) (api.Attachment, error) {
		return s.Attachments.BeginAttach(ctx, opID, volume, in)
	})
}

func (s *Server) detachVolume(w http.ResponseWriter, r *http.Request) error {
	var in api.VolumeDetach
	return s.atInstance(w, r, &in, &in.Instance, func(ctx context.Context, opID, volume string) (api.Attachment, error) {
		return s.Attachments.BeginDetach(ctx, opID, volume, in)
	})
}

// atInstance begins an op of a volume at an instance, which the body in names. That of
// one that is on no host is the registry's.
func (s *Server) atInstance(w http.ResponseWriter, r *http.Request, in any, instance *string,
	begin func(ctx context.Context, opID, volume string) (api.Attachment, error),
) error {
	r, err := decodeAndKeep(r, in)
	if err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	if s.onShelf(r.Context(), id, *instance) {
		return s.passOn(w, r, "instance "+*instance+" is on no host")
	}
	att, err := begin(r.Context(), id, r.PathValue("volume"))
	if err != nil {
		return err
	}
	return s.begun(w, r, id, httpjson.Noun{Name: "attachment", Value: att})
}

func (s *Server) deleteAttachment(w http.ResponseWriter, r *http.Request) error {
	force, err := forced(r)
	if err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	if ref := r.PathValue("attachment"); s.ofShelf(r.Context(), id, ref) {
		return s.passOn(w, r, "attachment "+ref+" is of an instance that is on no host")
	}
	att, err := s.Attachments.BeginDelete(r.Context(), id, r.PathValue("attachment"), force)
	if err != nil {
		return err
	}
	return s.begun(w, r, id, httpjson.Noun{Name: "attachment", Value: att})
}

// begun answers with the op that does what was asked for, and what it does it to.
func (s *Server) begun(w http.ResponseWriter, r *http.Request, opID string, what ...httpjson.Noun) error {
	o, err := s.Migrations.Request(r.Context(), opID)
	if err != nil {
		return err
	}
	return httpjson.WriteAll(w, http.StatusAccepted, append([]httpjson.Noun{{Name: "op", Value: o}}, what...)...)
}

// forced reads the query parameter force.
func forced(r *http.Request) (bool, error) {
	q, err := httpjson.Query(r, "force")
	if err != nil || !q.Has("force") {
		return false, err
	}
	force, err := strconv.ParseBool(q.Get("force"))
	if err != nil {
		return false, api.Errorf(api.CodeInvalidArgument, "the query parameter force is 1 or 0, not %.20q", q.Get("force"))
	}
	return force, nil
}
