// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"context"
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
)

// A daemon that has just started is not connected yet to libvirt, which has the key of the cluster.
func TestAnImageWhoseKeyLibvirtCannotGiveNowIsWaitedForAndNotRefused(t *testing.T) {
	const cluster = "5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11"
	s := image.Storage{Network: network.Access{RBD: &rbd.Client{
		Clusters: rbd.Clusters{cluster: {}},
		Secret:   func(context.Context, string) ([]byte, error) { return nil, hv.ErrUnavailable },
	}}}
	path := "rbd://" + cluster + "/rbd/web"
	if _, err := s.Inspect(t.Context(), api.Location{Path: path, Format: api.FormatRaw}); !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("its size: %v", err)
	}
	if _, err := s.Fingerprint(t.Context(), path); !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("its identity: %v", err)
	}
}
