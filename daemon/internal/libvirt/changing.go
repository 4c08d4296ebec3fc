// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// MakeDurable puts on stable storage what calls of this connection have changed of
// what libvirt keeps in files, and what they may have changed where their outcome is
// unknown. After New it does that once for everything. If it fails it has to be
// called again.
func (c *Conn) MakeDurable() error { return c.library.makeDurable() }

// changing is call for a call that may change what libvirt keeps.
func changing[T any](ctx context.Context, c *Conn, s *session, limit time.Duration, what kept, do func(*golibvirt.Libvirt) (T, error)) (T, error) {
	value, err := call(ctx, s, limit, do)
	c.library.note(what, err)
	return value, err
}
