// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/x509"
	"fmt"
	"maps"
	"sync"
	"time"
)

// authorities has the accepted certificate authorities. When their file changes, a new value with
// an empty cache replaces this one.
type authorities struct {
	pool     *x509.CertPool
	verified *verified
}

// verified caches the identities of verified certificates. Only holders of a valid certificate can
// add to it.
type verified struct {
	mu sync.RWMutex
	// byDER has the identities by certificate in DER, which is cheaper to look up than its hash.
	byDER map[string]Identity
}

func (v *verified) get(cert *x509.Certificate) (id Identity, found bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	id, found = v.byDER[string(cert.Raw)]
	return id, found
}

func (v *verified) put(cert *x509.Certificate, id Identity) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.byDER[string(cert.Raw)] = id
}

func (v *verified) forget(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.byDER, func(_ string, id Identity) bool { return now.After(id.NotAfter) })
}

func (a *authorities) identify(cert *x509.Certificate, now time.Time) (Identity, error) {
	if id, known := a.verified.get(cert); known {
		return id, nil
	}
	id, err := IdentityOfCertificate(cert)
	if err != nil {
		return Identity{}, err
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: a.pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return Identity{}, fmt.Errorf("the certificate of %s is not one that this site takes: %w", id, err)
	}
	a.verified.put(cert, id)
	return id, nil
}

func readAuthorities(path string) (authorities, error) {
	certs, err := readCertificates(path)
	if err != nil {
		return authorities{}, err
	}
	pool := x509.NewCertPool()
	for _, cert := range certs {
		if !cert.IsCA {
			return authorities{}, fmt.Errorf("%s has a certificate in it that is no authority's", path)
		}
		pool.AddCert(cert)
	}
	return authorities{pool: pool, verified: &verified{byDER: map[string]Identity{}}}, nil
}
