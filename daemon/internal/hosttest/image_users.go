// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"

	"github.com/volferry/volferry/internal/medium"
)

// InUse describes the holder of an image, other than domains. For an RBD image it does not count
// the clients that ours counts.
func (i *Images) InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error) {
	if medium.Of(path).Protocol == medium.ProtocolRBD {
		// A guest may start or stop between two counts, so image.Storage counts again too.
		for look := 1; ; look++ {
			others, err := i.otherClients(ctx, path, ours)
			if err != nil {
				return "", err
			}
			if !others {
				break
			}
			if look == 2 {
				return "its clients are not those of the guests", nil
			}
		}
	}
	i.Mu.Lock()
	defer i.Mu.Unlock()
	return i.Users[path], nil
}

func (i *Images) otherClients(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (bool, error) {
	clients := i.Fake.Clients(path)
	if ours == nil {
		return clients > 0, nil
	}
	least, most, err := ours(ctx)
	return clients > most || clients < least, err
}
