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
	maxFileBytes = 1 << 20
	maxListBytes = 64 << 20
)

const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// dnsName matches a host name in a certificate: no wildcard, no final dot.
var dnsName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

// Pair is a certificate, its key, and the authority that signed it, as PEM.
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

// Write writes the pair to dir as name.crt and name.key, and its authority as ca.crt. It replaces
// no certificate or key, and an existing ca.crt must contain the authority. Other users may own
// dir: Write follows no link in dir, and gives a server's key to dir's owner.
func (p Pair) Write(dir, name string) error {
	return p.write(dir, name, func(d *atomicfile.Directory) error { return refuseExisting(d, name+".crt", name+".key") })
}

// Replace is Write, but replaces an existing pair. A reader between the two writes finds a key and
// a certificate that do not match, and keeps its previous pair.
func (p Pair) Replace(dir, name string) error {
	return p.write(dir, name, func(*atomicfile.Directory) error { return nil })
}

func (p Pair) write(dir, name string, check func(*atomicfile.Directory) error) (err error) {
	d, err := atomicfile.MakeDirectory(dir, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := check(d); err != nil {
		return err
	}
	// A killed call has left the key in a temporary file.
	if err := d.SweepOld(); err != nil {
		return err
	}
	if err := p.writeCA(d); err != nil {
		return err
	}
	writeKey := d.Write
	if name+".key" == ServerKeyFile {
		writeKey = d.WriteForOwner
	}
	if err := writeKey(name+".key", p.Key, 0o600); err != nil {
		return err
	}
	return d.Write(name+".crt", p.Cert, 0o644)
}

func (p Pair) writeCA(d *atomicfile.Directory) error {
	known, _, err := d.Read(CACertFile, maxFileBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.Write(CACertFile, p.CA, 0o644)
	case err != nil:
		return err
	case !bytes.Contains(known, p.CA):
		return fmt.Errorf("%s is there already and is another authority's; choose another directory or move it away", d.Path(CACertFile))
	}
	return nil
}

func refuseExisting(d *atomicfile.Directory, names ...string) error {
	for _, name := range names {
		exists, err := d.Exists(name)
		if err != nil {
			return err
		}
		if exists {
			return fmt.Errorf("%s is there already and is not replaced: %w", d.Path(name), fs.ErrExist)
		}
	}
	return nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der})
}

func encodeKey(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der})
}

// ReadCertificate returns the first certificate of a PEM file in dir. It follows no link in dir.
func ReadCertificate(dir, name string) (*x509.Certificate, error) {
	certs, err := readCertificatesIn(dir, name)
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}

func readCertificatesIn(dir, name string) ([]*x509.Certificate, error) {
	data, err := readIn(dir, name)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return parseCertificates(filepath.Join(dir, name), data)
}

func readIn(dir, name string) (data []byte, err error) {
	d, err := atomicfile.OpenDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	data, _, err = d.Read(name, maxFileBytes)
	return data, err
}

// IdentityOfFile returns the identity in the first certificate of a PEM file.
func IdentityOfFile(path string) (Identity, error) {
	certs, err := readCertificates(path)
	return identityOfFirst(path, certs, err)
}

// IdentityIn is IdentityOfFile for a file in dir. It follows no link in dir.
func IdentityIn(dir, name string) (Identity, error) {
	certs, err := readCertificatesIn(dir, name)
	return identityOfFirst(filepath.Join(dir, name), certs, err)
}

func identityOfFirst(path string, certs []*x509.Certificate, err error) (Identity, error) {
	if err != nil {
		return Identity{}, err
	}
	id, err := IdentityOfCertificate(certs[0])
	if err != nil {
		return Identity{}, fmt.Errorf("%s: %w", path, err)
	}
	return id, nil
}

// readCertificates returns the certificates of a PEM file. It refuses a file with anything else,
// or with none.
func readCertificates(path string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return parseCertificates(path, data)
}

func parseCertificates(path string, data []byte) ([]*x509.Certificate, error) {
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

// readKey reads a key in dir. It follows no link in dir.
func readKey(dir, name string) (*ecdsa.PrivateKey, error) {
	path := filepath.Join(dir, name)
	data, err := readIn(dir, name)
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

// underLock runs do while no other process changes the lists in dir.
func underLock(dir string, do func(*atomicfile.Directory) error) (err error) {
	d, err := atomicfile.OpenDirectory(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Lock(); err != nil {
		return err
	}
	return do(d)
}
