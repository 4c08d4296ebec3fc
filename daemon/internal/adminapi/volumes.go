// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

func (s *Server) createVolume(w http.ResponseWriter, r *http.Request) error {
	var in api.VolumeCreate
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	vol, err := s.Volumes.Create(r.Context(), id, in)
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusCreated, "volume", vol)
}

func (s *Server) adoptVolume(w http.ResponseWriter, r *http.Request) error {
	var in api.VolumeAdopt
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	vol, err := s.Volumes.Adopt(r.Context(), id, in)
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusCreated, "volume", vol)
}

func (s *Server) resizeVolume(w http.ResponseWriter, r *http.Request) error {
	var in api.VolumeResize
	if err := httpjson.Decode(r, &in); err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	vol, err := s.Volumes.Resize(r.Context(), id, r.PathValue("volume"), in)
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusOK, "volume", vol)
}

func (s *Server) deleteVolume(w http.ResponseWriter, r *http.Request) error {
	force, err := forced(r)
	if err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	vol, err := s.Volumes.Delete(r.Context(), id, r.PathValue("volume"), force)
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusOK, "volume", vol)
}

func (s *Server) which(w http.ResponseWriter, r *http.Request) error {
	vol, err := s.Registry.Volume(r.Context(), r.PathValue("volume"))
	remembered := err != nil && away(err)
	if remembered {
		if known, ok := s.Uplink.KnownVolume(r.PathValue("volume")); ok {
			vol, err = known, nil
		}
	}
	if err != nil {
		return err
	}
	answer, err := s.Migrations.Which(r.Context(), vol)
	if err != nil {
		return err
	}
	if remembered {
		answer.WithoutRegistry()
	}
	return httpjson.Write(w, http.StatusOK, "which", answer)
}
