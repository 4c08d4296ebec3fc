// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/internal/httpjson"
)

// The validity of certificates.
const (
	Day             = 24 * time.Hour
	DefaultValidity = 30 * Day
	MaxValidity     = 90 * Day
	// caValidity is long: a new authority means new certificates for all hosts and operators.
	caValidity = 10 * 365 * Day
	// skew is how slow a host's clock may be for a new certificate to be valid at once.
	skew = 5 * time.Minute
)

// CA is the site's certificate authority.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// Now is time.Now, except in tests.
	Now func() time.Time
}

// CreateCA creates an authority: ca.crt and an empty deny-list in dir, ca.key in keyDir (which may
// be dir). Missing directories are made with mode 0700. It never replaces an existing authority.
func CreateCA(dir, keyDir string) (_ *CA, err error) {
	certs, err := atomicfile.MakeDirectory(dir, 0o700)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, certs.Close()) }()
	keys, err := atomicfile.MakeDirectory(keyDir, 0o700)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, keys.Close()) }()
	// Either half counts as an authority: the other half may be elsewhere.
	if err := cmp.Or(refuseExisting(certs, CACertFile), refuseExisting(keys, CAKeyFile)); err != nil {
		return nil, err
	}
	pair, err := selfSigned()
	if err != nil {
		return nil, err
	}
	// The key first: a certificate without its key is useless.
	if err := keys.Write(CAKeyFile, pair.Key, 0o600); err != nil {
		return nil, err
	}
	if err := certs.Write(CACertFile, pair.Cert, 0o644); err != nil {
		return nil, err
	}
	if err := createDenyList(certs); err != nil {
		return nil, err
	}
	return LoadCA(dir, keyDir)
}

func selfSigned() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return Pair{}, err
	}
	begin := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		// The number distinguishes authorities that replace each other.
		Subject:               pkix.Name{Organization: []string{"Volferry"}, CommonName: fmt.Sprintf("Volferry CA %x", serial.Bytes()[:4])},
		NotBefore:             begin.Add(-skew),
		NotAfter:              begin.Add(caValidity),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	return sign(template, template, key, key)
}

// LoadCA reads ca.crt in dir and ca.key in keyDir.
func LoadCA(dir, keyDir string) (*CA, error) {
	certs, err := readCertificatesIn(dir, CACertFile)
	if err != nil {
		return nil, err
	}
	key, err := readKey(keyDir, CAKeyFile)
	if err != nil {
		return nil, err
	}
	// While an authority is being replaced, the file contains the old one too.
	for _, cert := range certs {
		if key.PublicKey.Equal(cert.PublicKey) {
			return &CA{cert: cert, key: key, Now: time.Now}, nil
		}
	}
	return nil, fmt.Errorf("%s and %s do not belong together", filepath.Join(dir, CACertFile), filepath.Join(keyDir, CAKeyFile))
}

// IssueHost issues a certificate for a host.
func (ca *CA) IssueHost(id, name string, valid time.Duration) (Pair, error) {
	if u, err := uuid.Parse(id); err != nil || u.String() != id {
		return Pair{}, fmt.Errorf("the host id %.80q is not a UUID in lower case", id)
	}
	return ca.issueClient(Identity{Kind: KindHost, ID: id, Name: name}, valid)
}

// IssueOperator issues a certificate for an operator.
func (ca *CA) IssueOperator(role httpjson.Access, name string, valid time.Duration) (Pair, error) {
	if _, err := ParseRole(role.String()); err != nil {
		return Pair{}, err
	}
	return ca.issueClient(Identity{Kind: KindOperator, Role: role, Name: name}, valid)
}

func (ca *CA) issueClient(id Identity, valid time.Duration) (Pair, error) {
	if !nameRule.MatchString(id.Name) {
		return Pair{}, fmt.Errorf("the name %.80q is not allowed: it must begin with a letter or digit, go on with letters, digits, dots, underscores and hyphens, and have at most 64 characters", id.Name)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: id.Name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	template.URIs = append(template.URIs, id.uri())
	return ca.issue(template, valid)
}

// IssueServer issues a certificate for the registry. Names are all its host names and addresses.
func (ca *CA) IssueServer(names []string, valid time.Duration) (Pair, error) {
	if err := CheckServerNames(names); err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		// Clients compare a server's name only with the alternative names.
		Subject:     pkix.Name{CommonName: "volferry-registry"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return ca.issue(template, valid)
}

// CheckServerNames refuses names that a server certificate must not have.
func CheckServerNames(names []string) error {
	if len(names) == 0 {
		return errors.New("a server certificate needs the names or addresses under which hosts reach the registry")
	}
	for _, name := range names {
		if net.ParseIP(name) == nil && (!dnsName.MatchString(name) || len(name) > 253) {
			return fmt.Errorf("%.80q is neither a host name nor an address", name)
		}
	}
	return nil
}

// ServerNames returns the names in a server certificate.
func ServerNames(cert *x509.Certificate) []string {
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

func (ca *CA) issue(template *x509.Certificate, valid time.Duration) (Pair, error) {
	if valid <= 0 || valid > MaxValidity {
		return Pair{}, fmt.Errorf("a certificate can be good for 1 to %d days", MaxValidity/Day)
	}
	now := ca.Now()
	if end := now.Add(valid); end.After(ca.cert.NotAfter) {
		return Pair{}, fmt.Errorf("the certificate would be good until %s, longer than its authority, which ends on %s; make a new authority", end.UTC().Format(time.DateOnly), ca.cert.NotAfter.UTC().Format(time.DateOnly))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key: %w", err)
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return Pair{}, err
	}
	template.NotBefore, template.NotAfter = now.Add(-skew), now.Add(valid)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	pair, err := sign(template, ca.cert, key, ca.key)
	if err != nil {
		return Pair{}, err
	}
	pair.CA = encodeCertificate(ca.cert.Raw)
	return pair, nil
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode key: %w", err)
	}
	return Pair{Cert: encodeCertificate(der), Key: encodeKey(encoded)}, nil
}

// newSerial returns a random serial number of 16 bytes. Its first two bits are 01: it is positive,
// and its length is fixed.
func newSerial() (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	b[0] = b[0]&0x3f | 0x40
	return new(big.Int).SetBytes(b), nil
}
