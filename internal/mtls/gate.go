// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"
)

const renewBefore = 5 * Day

// Gate authenticates TLS connections with the files of a TLS directory. It loads changed files at
// every handshake and request. An unreadable file is logged once, and its last valid content stays
// in use. A Gate is safe for concurrent use.
type Gate struct {
	Now func() time.Time

	dir    string
	log    *slog.Logger
	server *watched[tls.Certificate]
	roots  *watched[authorities]
	denied *watched[denyList]
	active active
}

// NewGate reads server.crt, server.key, ca.crt and the deny-list of dir. All must be valid.
func NewGate(dir string, log *slog.Logger) (*Gate, error) {
	certFile, keyFile := filepath.Join(dir, ServerCertFile), filepath.Join(dir, ServerKeyFile)
	caFile, denyFile := filepath.Join(dir, CACertFile), filepath.Join(dir, DenyListFile)
	g := &Gate{Now: time.Now, dir: dir, log: log}
	var errs [3]error
	g.server, errs[0] = newWatched("server certificate", log, func() (tls.Certificate, error) { return readPair(certFile, keyFile) }, certFile, keyFile)
	g.roots, errs[1] = newWatched("authority", log, func() (authorities, error) { return readAuthorities(caFile) }, caFile)
	g.denied, errs[2] = newWatched("deny-list", log, func() (denyList, error) { return readDenyList(denyFile) }, denyFile)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return g, nil
}

// Trouble returns an error if a changed file cannot be used or the server certificate ends soon,
// else nil.
func (g *Gate) Trouble() error {
	return errors.Join(g.server.trouble(), g.roots.trouble(), g.denied.trouble(), g.ending())
}

func (g *Gate) ending() error {
	end := g.ServerCertificate().NotAfter
	if g.Now().Add(renewBefore).Before(end) {
		return nil
	}
	return fmt.Errorf("the server certificate ends at %s, and then no host gets in; renew it with volferry-registry issue-cert server --replace", end.UTC().Format(time.RFC3339))
}

// ServerCertificate returns the server certificate in use.
func (g *Gate) ServerCertificate() *x509.Certificate { return g.server.get().Leaf }

// Lifetimes returns the lifetimes of the certificates in the current files.
func (g *Gate) Lifetimes() []Lifetime {
	return []Lifetime{
		LifetimeOf("server", filepath.Join(g.dir, ServerCertFile)),
		LifetimeOf("authority", filepath.Join(g.dir, CACertFile)),
	}
}

// Config returns the configuration of the listener: TLS 1.3, and only accepted client
// certificates.
func (g *Gate) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return g.config(), nil
		},
	}
}

func (g *Gate) config() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{*g.server.get()},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    g.roots.get().pool,
		NextProtos:   []string{"http/1.1"},
		Time:         g.Now,
		// A resumed session would skip the present checks.
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := g.look(g.roots.get(), state)
			return err
		},
	}
}

// Caller returns the name of a connection's peer, the same for all connections of one host or
// operator.
func (g *Gate) Caller(state tls.ConnectionState) (string, error) {
	id, err := g.look(g.roots.get(), state)
	return id.String(), err
}

// look returns the identity of a connection's peer if the peer is accepted now.
func (g *Gate) look(roots *authorities, state tls.ConnectionState) (Identity, error) {
	if len(state.PeerCertificates) == 0 {
		return Identity{}, errors.New("there is no certificate")
	}
	now := g.Now()
	id, err := roots.identify(state.PeerCertificates[0], now)
	if err != nil {
		return Identity{}, err
	}
	return id, allowed(id, now, *g.denied.get())
}

func allowed(id Identity, now time.Time, denied denyList) error {
	switch {
	case denied[id.SPKI]:
		return fmt.Errorf("the certificate of %s was revoked", id)
	case now.After(id.NotAfter):
		return fmt.Errorf("the certificate of %s expired at %s", id, id.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(id.NotBefore):
		return fmt.Errorf("the certificate of %s is not good before %s", id, id.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

func readPair(certFile, keyFile string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read certificate %s with its key %s: %w", certFile, keyFile, err)
	}
	return pair, nil
}
