// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Secret returns the value of a secret. libvirt does not return the value of a private secret.
func (h *host) Secret(ctx context.Context, id string) ([]byte, error) {
	u, err := uuid.Parse(id)
	if err != nil {
		return nil, fmt.Errorf("read secret %q: %w", id, err)
	}
	s, err := h.connection.reads()
	if err != nil {
		return nil, err
	}
	value, err := call(ctx, s, func(lv *golibvirt.Libvirt) ([]byte, error) {
		secret, err := lv.SecretLookupByUUID(golibvirt.UUID(u))
		if err != nil {
			return nil, err
		}
		return lv.SecretGetValue(secret, 0)
	})
	switch {
	case said(err, golibvirt.ErrNoSecret):
		return nil, fmt.Errorf("read secret %s: %w: libvirt has no such secret, or no value of it (virsh secret-list, virsh secret-set-value)", id, hv.ErrNotFound)
	case said(err, golibvirt.ErrInvalidSecret):
		return nil, fmt.Errorf("read secret %s: it is private, and such a one libvirt gives to nobody; define it with private='no'", id)
	case err != nil:
		return nil, fmt.Errorf("read secret %s: %w", id, err)
	}
	return value, nil
}
