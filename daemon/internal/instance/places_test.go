// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// places are the images that a host refuses: outside the permitted places, or links.
type places struct {
	outside, linked string
	// rules, if set, decide about images in a pool, from the files of this machine.
	rules *location.Rules
	pools location.PoolVolumes
}

// CheckLocation implements steps.Locations.
func (p *places) CheckLocation(ctx context.Context, l api.Location, verdict string) error {
	if p.rules != nil && l.Pool != "" {
		return p.rules.CheckLocation(ctx, p.pools, l, verdict)
	}
	if l.Path == p.outside {
		return api.Errorf(api.CodePermissionDenied, "%s is in no active pool", l.Path)
	}
	return p.CheckImages(l)
}

// CheckImages implements steps.Locations.
func (p *places) CheckImages(l api.Location) error {
	if p.rules != nil && l.Pool != "" {
		return p.rules.CheckImages(l)
	}
	if l.Path == p.linked {
		return api.Errorf(api.CodePermissionDenied, "%s is a symbolic link", l.Path)
	}
	return nil
}

// onlyPlaces are Locations that connect nothing.
type onlyPlaces struct {
	subject.Locations
	of *places
}

// CheckLocation implements steps.Locations.
func (p onlyPlaces) CheckLocation(ctx context.Context, l api.Location, verdict string) error {
	return p.of.CheckLocation(ctx, l, verdict)
}

// CheckImages implements steps.Locations.
func (p onlyPlaces) CheckImages(l api.Location) error { return p.of.CheckImages(l) }
