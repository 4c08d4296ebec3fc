// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Credentials are what a client shows to the registry, and the authority that
// the registry must be of, from files that are looked at with each use. Safe for
// concurrent use.
type Credentials struct {
	certFile string
	pair     *watched[tls.Certificate]
	roots    *watched[authorities]
}

// NewCredentials reads the files, which must be right now. Later, files that
// cannot be read leave the last good ones in use.
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

// ClientConfig returns what one connection to the registry needs: TLS 1.3, the
// authority of caFile and no other, and the certificate of the other two files.
// A program that connects more than once has Credentials.
func ClientConfig(caFile, certFile, keyFile, serverName string) (*tls.Config, error) {
	c, err := NewCredentials(caFile, certFile, keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return c.Config(serverName), nil
}

// Config is for one connection to the registry at serverName, by the files as
// they are now.
func (c *Credentials) Config(serverName string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: serverName,
		RootCAs:    c.roots.get().pool,
		NextProtos: []string{"http/1.1"},
		// Whatever the server says it would take: its refusal says more than the
		// missing of a certificate.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.pair.get(), nil
		},
	}
}

// Version returns a value that is another one after the files have changed, and
// can be compared.
func (c *Credentials) Version() any {
	return [2]any{c.pair.get(), c.roots.get()}
}

// Identity returns who the certificate is.
func (c *Credentials) Identity() (Identity, error) {
	id, err := IdentityOfCertificate(c.pair.get().Leaf)
	if err != nil {
		return Identity{}, fmt.Errorf("%s: %w", c.certFile, err)
	}
	return id, nil
}

// Trouble says why the files as they are now are not in use, nil if they are.
func (c *Credentials) Trouble() error { return errors.Join(c.pair.trouble(), c.roots.trouble()) }

// String says which certificate it is and until when it is good, for messages.
func (c *Credentials) String() string {
	text := fmt.Sprintf("the certificate %s is good until %s", c.certFile, c.pair.get().Leaf.NotAfter.UTC().Format(time.RFC3339))
	if err := c.Trouble(); err != nil {
		text += fmt.Sprintf(", and what is in the files now cannot be used: %v", err)
	}
	return text
}
