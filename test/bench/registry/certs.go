// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// authority issues certificates to hosts as `volferry-registry issue-cert` does,
// from the files that init-ca made: ten thousand runs of a program would take
// longer than what is to be measured.
type authority struct {
	pool *x509.CertPool
	cert *x509.Certificate
	key  any
	// mine is the key of every host. Hosts differ by what is in their certificates.
	mine   *ecdsa.PrivateKey
	serial int64
}

func loadAuthority(dir string) (*authority, error) {
	certDER, err := readPEM(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	keyDER, err := readPEM(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	a := &authority{pool: x509.NewCertPool()}
	var errs [3]error
	a.cert, errs[0] = x509.ParseCertificate(certDER)
	a.key, errs[1] = x509.ParsePKCS8PrivateKey(keyDER)
	a.mine, errs[2] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	a.pool.AddCert(a.cert)
	return a, nil
}

func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("read authority: %s has no PEM block", path)
	}
	return block.Bytes, nil
}

// client is the TLS configuration of a host.
func (a *authority) client(id, name string) (*tls.Config, error) {
	a.serial++
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(a.serial),
		Subject:               pkix.Name{CommonName: name},
		URIs:                  []*url.URL{{Scheme: "spiffe", Host: "volferry", Path: "/host/" + id}},
		NotBefore:             now.Add(-time.Minute),
		NotAfter:              now.Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.mine.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		ServerName:   "127.0.0.1",
		RootCAs:      a.pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: a.mine}},
	}, nil
}
