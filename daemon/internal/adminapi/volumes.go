// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"fmt"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

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
	return routes.DeleteVolume.Write(w, http.StatusOK, vol)
}

func (s *Server) which(r *http.Request, _ routes.None) (api.Which, error) {
	vol, err := s.Registry.Volume(r.Context(), r.PathValue("volume"))
	remembered := err != nil && away(err)
	if remembered {
		if known, ok := s.Uplink.KnownVolume(r.PathValue("volume")); ok {
			vol, err = known, nil
		}
	}
	if err != nil {
		return api.Which{}, err
	}
	answer, err := s.Migrations.Which.Find(r.Context(), vol)
	if why := api.AsError(err); err != nil && why.Code == api.CodeHypervisorUnavailable {
		answer.WithoutHypervisor(why.Message)
		err = nil
	}
	if err != nil {
		return api.Which{}, err
	}
	if remembered {
		answer.WithoutRegistry()
		return answer, nil // the registry knows the image's owner
	}
	left, err := s.Migrations.Released.WrittenSources(r.Context(), vol.ID)
	if err != nil {
		answer.Explanation += fmt.Sprintf("; nobody can tell whether an image that the volume has left by a move was written since: %v", err)
	}
	for i := range left {
		if left[i].Written {
			answer.Written = append(answer.Written, left[i].Location)
		}
	}
	return answer, nil
}

// forgetVolume makes the registry forget a volume, unless an op of this host creates, deletes or
// resizes it.
func (s *Server) forgetVolume(w http.ResponseWriter, r *http.Request) error {
	vol, err := s.Registry.Volume(r.Context(), r.PathValue("volume"))
	if err == nil && vol.Status != api.VolumeAvailable && vol.Status != api.VolumeInUse {
		return api.Errorf(api.CodeVolumeNotAvailable, "cannot forget volume %s: it is %s; %s", vol.Name, vol.Status, endOf(&vol)).With("status", vol.Status)
	}
	// The registry makes the other checks, also for a repeated request.
	return s.passing().proxied(w, r)
}

// endOf returns how an operator ends the state that keeps a volume from being forgotten. For a
// growing volume it must not propose to delete the image, which has the data.
func endOf(vol *api.Volume) string {
	if vol.Status == api.VolumeResizing {
		return "wait until that is over; if it stands, `volferryctl op list` has the command that goes on with it"
	}
	return "wait until that is over, or delete what there is of its image, too (`" + shell.Line("volferryctl", "volume", "delete", vol.Name, "--force") + "`)"
}
