// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"

	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/uplink"
)

// instanceHost returns this host's identity for the ops of instances. It does not ask the
// registry, so that instances may be started and stopped while the registry does not answer.
func instanceHost(up *uplink.Uplink, who host) func(context.Context) (instance.Host, error) {
	return func(ctx context.Context) (instance.Host, error) {
		if _, epoch := up.Token(); epoch != 0 {
			return instance.Host{ID: who.id, Name: who.name, Epoch: epoch}, nil
		}
		h, err := up.Host(ctx)
		return instance.Host{ID: cmp.Or(h.ID, who.id), Name: cmp.Or(h.Name, who.name), Epoch: h.Epoch}, err
	}
}
