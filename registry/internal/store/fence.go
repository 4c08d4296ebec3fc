// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/volferry/volferry/internal/api"
)

// FenceHost takes an operator's word that a host cannot touch any volume any
// more. Its epoch grows, so that whatever it still asks for is stale, and its
// open migrations are orphaned: everything stays locked.
func (s *Store) FenceHost(ctx context.Context, call Call, ref string, in api.HostFence) (api.Host, error) {
	return api.Host{}, errSkeleton()
}

// RejoinHost lets a fenced host work again that has let go of what it lost. It
// shows by the present epoch that it knows of the fence.
func (s *Store) RejoinHost(ctx context.Context, call Call, ref string, in api.HostRejoin) (api.Host, error) {
	return api.Host{}, errSkeleton()
}

// AuditRefusal adds to the trail that a call was refused. It is for calls whose
// attempt is news as well: fence, force and abandon, where they are refused
// before they get as far as the store.
func (s *Store) AuditRefusal(ctx context.Context, call Call, what, object string, refusal error) error {
	return errSkeleton()
}

func errSkeleton() error { return api.Errorf(api.CodeInternal, "not built yet") }
