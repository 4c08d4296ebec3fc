// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/atomicfile"
)

// The files of a TLS directory.
const (
	CACertFile     = "ca.crt"
	CAKeyFile      = "ca.key"
	ServerCertFile = "server.crt"
	ServerKeyFile  = "server.key"
	DenyListFile   = "denied"
)

const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// dnsName is a host name as certificates have it: no wildcard, no final dot.
var dnsName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

// Pair is a certificate with its key and the authority that signed it, as PEM.
type Pair struct {
	Cert, Key, CA []byte
}

// Identity returns the identity in the certificate of the pair.
func (p Pair) Identity() (Identity, error) {
	block, _ := pem.Decode(p.Cert)
	if block == nil {
		return Identity{}, errors.New("the certificate is not in PEM form")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Identity{}, fmt.Errorf("read certificate: %w", err)
	}
	return IdentityOfCertificate(cert)
}

// Write puts the pair into dir as name.crt and name.key, and its authority as ca.crt. It
// does not replace a certificate or key, and if there is a ca.crt, that must contain the
// authority.
func (p Pair) Write(dir, name string) error {
	if err := refuseExisting(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")); err != nil {
		return err
	}
	return p.Replace(dir, name)
}

// Replace is Write, and replaces a pair that is there. A reader that comes between the two
// files finds that they do not belong together, and keeps the pair that it had.
func (p Pair) Replace(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory of the certificate: %w", err)
	}
	// One that was killed here has left a key under a name of no use.
	if err := atomicfile.SweepOld(dir); err != nil {
		return err
	}
	if err := p.writeCA(filepath.Join(dir, CACertFile)); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, name+".key"), p.Key, 0o600); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, name+".crt"), p.Cert, 0o644)
}

func (p Pair) writeCA(path string) error {
	known, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return atomicfile.Write(path, p.CA, 0o644)
	case err != nil:
		return fmt.Errorf("read authority: %w", err)
	case !bytes.Contains(known, p.CA):
		return fmt.Errorf("%s is there already and is another authority's; choose another directory or move it away", path)
	}
	return nil
}

func refuseExisting(paths ...string) error {
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s is there already and is not replaced: %w", path, fs.ErrExist)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for %s: %w", path, err)
		}
	}
	return nil
}

// writeNew writes a file that must not be there yet.
func writeNew(path string, data []byte, mode os.FileMode) error {
	if err := refuseExisting(path); err != nil {
		return err
	}
	return atomicfile.Write(path, data, mode)
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der})
}

func encodeKey(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der})
}

// ReadCertificate returns the first certificate of a PEM file.
func ReadCertificate(path string) (*x509.Certificate, error) {
	certs, err := readCertificates(path)
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}

// IdentityOfFile returns the identity in the certificate of a PEM file.
func IdentityOfFile(path string) (Identity, error) {
	cert, err := ReadCertificate(path)
	if err != nil {
		return Identity{}, err
	}
	id, err := IdentityOfCertificate(cert)
	if err != nil {
		return Identity{}, fmt.Errorf("%s: %w", path, err)
	}
	return id, nil
}

// readCertificates returns the certificates of a PEM file, which has at least
// one and nothing else.
func readCertificates(path string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			return nil, fmt.Errorf("%s has a %s in it; it must have certificates alone", path, block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read certificate %s: %w", path, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("%s has no certificate in PEM form", path)
	}
	return certs, nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemKey {
		return nil, fmt.Errorf("%s has no key in PEM form (PKCS 8)", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", path, err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key in %s is a %T; it must be an ECDSA key", path, key)
	}
	return ec, nil
}

// underLock runs do while nobody else changes the lists in dir: two at a time would lose
// what one of them wrote.
func underLock(dir string, do func() error) (err error) {
	lock, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	return do()
}
