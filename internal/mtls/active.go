// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"context"
	"crypto/x509"
	"sync"
)

type active struct {
	mu       sync.Mutex
	requests map[*request]struct{}
}

type request struct {
	id   Identity
	cert *x509.Certificate
	of   *authorities
	end  context.CancelFunc
}

// enter adds a request to the active ones. The caller must call done at the request's end.
func (a *active) enter(ctx context.Context, id Identity, cert *x509.Certificate, of *authorities) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	r := &request{id: id, cert: cert, of: of, end: cancel}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.requests == nil {
		a.requests = map[*request]struct{}{}
	}
	a.requests[r] = struct{}{}
	return ctx, func() {
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.requests, r)
	}
}

func (a *active) all() []*request {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*request, 0, len(a.requests))
	for r := range a.requests {
		list = append(list, r)
	}
	return list
}
