// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/x509"
	"errors"
	"fmt"
)

// CheckChain checks that the certificate in certFile is for a client, is signed by an authority in
// caFile, and belongs to the key in keyFile. It does not check lifetimes (LifetimeOf).
func CheckChain(caFile, certFile, keyFile string) error {
	authorities, err := readCertificates(caFile)
	if err != nil {
		return err
	}
	pair, err := readPair(certFile, keyFile)
	if err != nil {
		return err
	}
	var errs []error
	for _, ca := range authorities {
		at := pair.Leaf.NotBefore
		if ca.NotBefore.After(at) {
			at = ca.NotBefore
		}
		roots := x509.NewCertPool()
		roots.AddCert(ca)
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: at})
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("%s is not of an authority in %s: %w", certFile, caFile, errors.Join(errs...))
}
