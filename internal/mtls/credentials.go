// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Credentials are a client's certificate and the authority that must have signed the registry's
// certificate. Changed files are loaded again. Credentials are safe for concurrent use.
type Credentials struct {
	certFile string
	pair     *watched[tls.Certificate]
	roots    *watched[authorities]
}

// NewCredentials reads the files, which must be valid. If a file is invalid later, its last valid
// content stays in use.
func NewCredentials(caFile, certFile, keyFile string, log *slog.Logger) (*Credentials, error) {
	c := &Credentials{certFile: certFile}
	var errs [2]error
	c.pair, errs[0] = newWatched("certificate", log, func() (tls.Certificate, error) { return readPair(certFile, keyFile) }, certFile, keyFile)
	c.roots, errs[1] = newWatched("authority", log, func() (authorities, error) { return readAuthorities(caFile) }, caFile)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return c, nil
}

// Config returns the TLS configuration of one connection to the registry at serverName, with the
// current files.
func (c *Credentials) Config(serverName string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: serverName,
		RootCAs:    c.roots.get().pool,
		NextProtos: []string{"http/1.1"},
		// Send the certificate whichever authorities the server accepts: the refusal of a missing
		// certificate has less information.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.pair.get(), nil
		},
	}
}

// Version returns a value that changes when the files change. Compare it with ==.
func (c *Credentials) Version() any {
	return [2]any{c.pair.get(), c.roots.get()}
}

// Identity returns the identity in the certificate.
func (c *Credentials) Identity() (Identity, error) {
	id, err := IdentityOfCertificate(c.pair.get().Leaf)
	if err != nil {
		return Identity{}, fmt.Errorf("%s: %w", c.certFile, err)
	}
	return id, nil
}

// Trouble returns why the current files are not in use, or nil.
func (c *Credentials) Trouble() error { return errors.Join(c.pair.trouble(), c.roots.trouble()) }

// String returns, for messages, the certificate's file and when the certificate ends.
func (c *Credentials) String() string {
	text := fmt.Sprintf("the certificate %s is good until %s", c.certFile, c.pair.get().Leaf.NotAfter.UTC().Format(time.RFC3339))
	if err := c.Trouble(); err != nil {
		text += fmt.Sprintf(", and what is in the files now cannot be used: %v", err)
	}
	return text
}
