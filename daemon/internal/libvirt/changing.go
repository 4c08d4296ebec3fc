// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// MakeDurable syncs the libvirt files that calls of this connection have changed, or may have
// changed with an unknown outcome. The first call after New syncs all. After an error it must be
// called again.
func (c *Conn) MakeDurable() error { return c.library.makeDurable() }

func changing[T any](ctx context.Context, l *library, s *session, limit time.Duration, what kept, do func(*golibvirt.Libvirt) (T, error)) (T, error) {
	value, err := callWithin(ctx, s, limit, do)
	l.note(what, err)
	return value, err
}
