// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// Handler adds to each TLS request's context the identity of the sender, for IdentityOf and
// Authorizer.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			next.ServeHTTP(w, r)
			return
		}
		roots := g.roots.get()
		id, err := g.look(roots, *r.TLS)
		if err != nil {
			// The certificate was valid when the connection was made.
			w.Header().Set("Connection", "close")
			httpjson.WriteError(w, api.Errorf(api.CodePermissionDenied, "%v; ask for a new one", err))
			return
		}
		ctx, done := g.active.enter(r.Context(), id, r.TLS.PeerCertificates[0], roots)
		defer done()
		next.ServeHTTP(w, r.WithContext(WithIdentity(ctx, id)))
	})
}

// Authorizer authorizes callers over TLS by their certificates: operators by their role, hosts by
// the HostAccess of the route. socket authorizes requests through a Unix socket.
func Authorizer(socket httpjson.Authorizer) httpjson.Authorizer {
	return func(r *http.Request, route httpjson.Route) error {
		id, ok := IdentityOf(r.Context())
		if !ok {
			return socket(r, route)
		}
		if err := checkHostHeader(r, id); err != nil {
			return err
		}
		switch id.Kind {
		case KindHost:
			if route.Hosts != httpjson.HostOwn && route.Hosts != httpjson.HostAny {
				return api.Errorf(api.CodePermissionDenied, "host %s may not do this: it is for operators; use the registry's own socket or the certificate of an operator", id.Name)
			}
			return nil
		case KindOperator:
			if route.Access == httpjson.Local {
				return api.Errorf(api.CodePermissionDenied, "operator %s may not do this: by it a daemon speaks for its own host, and no role is enough", id.Name)
			}
			if route.Access > id.Role || id.Role > httpjson.Fence || route.Access < httpjson.Read {
				return api.Errorf(api.CodePermissionDenied, "operator %s may not do this: it asks for the role %s, and the certificate has the role %s", id.Name, route.Access, id.Role)
			}
			return nil
		}
		return api.Errorf(api.CodePermissionDenied, "cannot tell what %q is", id.Kind)
	}
}

func checkHostHeader(r *http.Request, id Identity) error {
	for _, said := range r.Header.Values(api.HostHeader) {
		if id.Kind != KindHost {
			return api.Errorf(api.CodePermissionDenied, "operator %s is no host; leave the header %s out", id.Name, api.HostHeader)
		}
		if said != id.ID {
			return api.Errorf(api.CodeNotYourHost, "the certificate is of host %s and the header %s names %.40q", id.ID, api.HostHeader, said)
		}
	}
	return nil
}
