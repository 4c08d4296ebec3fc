// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// MakeDurable puts on stable storage the files of libvirt that calls of this connection
// have changed, or may have changed if their outcome is unknown. The first call after New
// does so for all of libvirt's files. If it fails it has to be called again.
func (c *Conn) MakeDurable() error { return c.library.makeDurable() }

// changing is call for a call that may change what libvirt keeps.
func changing[T any](ctx context.Context, c *Conn, s *session, limit time.Duration, what kept, do func(*golibvirt.Libvirt) (T, error)) (T, error) {
	value, err := call(ctx, s, limit, do)
	c.library.note(what, err)
	return value, err
}
