// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/httpjson"
)

// Kind is the kind of a certificate's holder.
type Kind string

// The kinds of certificate holders.
const (
	KindHost     Kind = "host"
	KindOperator Kind = "operator"
)

// trustDomain is the domain in the URI of every identity.
const trustDomain = "volferry"

// nameRule is the rule for all names that users choose. An X.509 common name has at most 64
// characters.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Identity identifies the holder of a certificate.
type Identity struct {
	Kind Kind
	// ID is the UUID of a host; empty for an operator.
	ID   string
	Name string
	// Role is for an operator only.
	Role httpjson.Access
	// SPKI is the SHA-256 of the public key in hex, as in the deny-list.
	SPKI                string
	NotBefore, NotAfter time.Time
}

// String returns the identity in the form of the audit trail.
func (id Identity) String() string {
	if id.Kind == KindHost {
		return "host=" + id.Name + " id=" + id.ID
	}
	return "operator=" + id.Name + " role=" + id.Role.String()
}

func (id Identity) uri() *url.URL {
	path := "/host/" + id.ID
	if id.Kind == KindOperator {
		path = "/operator/" + id.Role.String() + "/" + id.Name
	}
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: path}
}

// IdentityOfCertificate returns the identity in cert. It refuses certificates that this package
// would not issue, but does not check signature or lifetime.
func IdentityOfCertificate(cert *x509.Certificate) (Identity, error) {
	if cert.IsCA {
		return Identity{}, errors.New("the certificate is an authority's, of no host and no operator")
	}
	if !slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		return Identity{}, errors.New("the certificate is not for clients")
	}
	if len(cert.URIs) != 1 {
		return Identity{}, fmt.Errorf("the certificate has %d URIs as its alternative names; it must have one", len(cert.URIs))
	}
	id, err := parseURI(cert.URIs[0].String(), cert.Subject.CommonName)
	if err != nil {
		return Identity{}, err
	}
	id.SPKI, id.NotBefore, id.NotAfter = SPKIOf(cert), cert.NotBefore, cert.NotAfter
	return id, nil
}

func parseURI(uri, commonName string) (Identity, error) {
	if !nameRule.MatchString(commonName) {
		return Identity{}, fmt.Errorf("the common name %.80q is not allowed", commonName)
	}
	rest, ok := strings.CutPrefix(uri, "spiffe://"+trustDomain+"/")
	if !ok {
		return Identity{}, fmt.Errorf("%.120q is no identity of Volferry", uri)
	}
	part := strings.Split(rest, "/")
	switch {
	case len(part) == 2 && part[0] == string(KindHost):
		if u, err := uuid.Parse(part[1]); err != nil || u.String() != part[1] {
			return Identity{}, fmt.Errorf("the host id %.80q is not a UUID in lower case", part[1])
		}
		return Identity{Kind: KindHost, ID: part[1], Name: commonName}, nil
	case len(part) == 3 && part[0] == string(KindOperator):
		role, err := ParseRole(part[1])
		if err != nil {
			return Identity{}, err
		}
		if part[2] != commonName {
			return Identity{}, fmt.Errorf("the certificate names the operator %.80q and %.80q", part[2], commonName)
		}
		return Identity{Kind: KindOperator, Name: commonName, Role: role}, nil
	}
	return Identity{}, fmt.Errorf("%.120q is neither a host nor an operator", uri)
}

// ParseRole returns the operator role with this name.
func ParseRole(name string) (httpjson.Access, error) {
	for _, role := range []httpjson.Access{httpjson.Read, httpjson.Operate, httpjson.Fence} {
		if role.String() == name {
			return role, nil
		}
	}
	return 0, fmt.Errorf("the role %.80q is none of read, operate and fence", name)
}

// SPKIOf returns the SHA-256 of the certificate's public key, in hex.
func SPKIOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

type identityKey struct{}

// WithIdentity returns ctx with the identity id.
func WithIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// IdentityOf returns the identity of the sender of ctx's request, false if the request did not
// come over TLS.
func IdentityOf(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(Identity)
	return id, ok
}
