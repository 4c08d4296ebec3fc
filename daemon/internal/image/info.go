// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Info is the result of Inspect.
type Info struct {
	SizeBytes      int64
	AllocatedBytes int64
	Block          bool
	// Identity is the device's own identity, or the id of the RBD image (api.Location.Identity).
	Identity string
}

// IdentityIn returns the identity of a device or RBD image (api.Location.Identity) from its
// fingerprint (Storage.Fingerprint). It is empty for anything else.
func IdentityIn(fingerprint string) string {
	if id, err := rbd.IDIn(fingerprint); err == nil {
		return id
	}
	return location.IdentityIn(fingerprint)
}

// CheckIdentity compares the location's identity with the identity of the image that was found
// there, and returns chain_changed if they differ: a new LUN or logical volume may have an old
// name. A location may have no identity.
func CheckIdentity(l api.Location, found string) error {
	if l.Identity == "" || location.SameIdentity(l.Identity, found) {
		return nil
	}
	return api.Errorf(api.CodeChainChanged,
		"%s is not what the volume there is on: that is %s, and now there is %s. Nothing is read from it, written or deleted. Put the right one back at this path; only if you have replaced it yourself and it has all data of the volume, say so with `%s`, and call again. A volume whose data is gone is forgotten: `volferryctl volume forget VOLUME`",
		l.Path, l.Identity, cmp.Or(found, "something that says nothing of itself"), shell.Line("volferryctl", "volume", "set", "VOLUME", "--identity", found)).
		With("expected", l.Identity).With("found", found)
}

// CheckDevice is CheckIdentity with the identity in the fingerprint of the image that is now at
// the location. It accepts an absent image. It opens no file or device; for an RBD image,
// fingerprint asks the cluster.
func CheckDevice(ctx context.Context, l api.Location, fingerprint func(ctx context.Context, path string) (string, error)) error {
	if l.Identity == "" {
		return nil
	}
	found, err := fingerprint(ctx, l.Path)
	if errors.Is(err, ErrAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	return CheckIdentity(l, IdentityIn(found))
}

// Prefixed puts the failed action before a refusal, as in "cannot start instance x".
func Prefixed(verdict string, err error) error {
	var refused *api.Error
	if !errors.As(err, &refused) {
		return err
	}
	said := *refused
	said.Message = verdict + ": " + said.Message
	return &said
}

func identityAt(l api.Location) (string, error) {
	fingerprint, err := location.Fingerprint(l.Path)
	if err != nil {
		return "", noImage(err)
	}
	identity := location.IdentityIn(fingerprint)
	return identity, CheckIdentity(l, identity)
}
