// SPDX-License-Identifier: Apache-2.0

package move

import (
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// NotStored reports whether err is a failed flush.
func NotStored(err error) bool {
	var lost *image.NotStoredError
	return errors.As(err, &lost)
}

// LostByGuest adds to a flush's error that the guest's lost writes cannot be repeated, since no
// other image has them.
func LostByGuest(s *Spec, err error) error {
	if !NotStored(err) {
		return err
	}
	return api.Errorf(api.CodeIOError, "%v: that is what was written to volume %s last, and only the memory of this host has it, for a while; mend the storage, and look at what the volume has, before you call again: "+
		"that goes on with what is stored", err, s.VolumeName)
}
