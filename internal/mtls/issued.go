// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/atomicfile"
)

// IssuedFile is the name of the list of issued certificates.
const IssuedFile = "issued"

const issuedHead = `# The certificates of hosts and operators that were issued here: the SHA-256 of the
# public key, the end, and whose it is. "volferry-registry revoke HOST-ID" looks here for
# all that a host was ever given.
`

// Record adds an issued certificate to the list in dir, the directory of the authority's key. Call
// Record before the certificate leaves the program: an unrecorded certificate cannot be denied.
// Record refuses a list that is a link or another user's, because that user could make root copy
// any file into the user's directory.
func Record(dir string, id Identity) error {
	return underLock(dir, func(d *atomicfile.Directory) error {
		data, err := readIssued(d)
		if errors.Is(err, fs.ErrNotExist) {
			data, err = []byte(issuedHead), nil
		}
		if err != nil {
			return err
		}
		if len(data) > 0 && data[len(data)-1] != '\n' {
			data = append(data, '\n')
		}
		data = fmt.Appendf(data, "%s %s %s\n", id.SPKI, id.NotAfter.UTC().Format(time.RFC3339), id)
		return d.Write(IssuedFile, data, 0o600)
	})
}

// Issued returns the public keys of the recorded certificates of a host.
func Issued(dir, hostID string) (keys []string, err error) {
	d, err := atomicfile.OpenDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	data, err := readIssued(d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		words := strings.Fields(string(line))
		if len(words) < 4 || words[0] == "#" || words[len(words)-1] != "id="+hostID {
			continue
		}
		spki, err := ParseSPKI(words[0])
		if err != nil {
			return nil, fmt.Errorf("read what was issued: %w", err)
		}
		keys = append(keys, spki)
	}
	return keys, nil
}

// readIssued reads the list in d. It must belong to the calling user and have the form of a list.
func readIssued(d *atomicfile.Directory) ([]byte, error) {
	path := d.Path(IssuedFile)
	data, owner, err := d.Read(IssuedFile, maxListBytes)
	if err != nil {
		return nil, fmt.Errorf("read what was issued: %w", err)
	}
	if owner != os.Geteuid() {
		return nil, fmt.Errorf("read what was issued: %s is not yours, but of the user with the id %d", path, owner)
	}
	for line := range bytes.Lines(data) {
		words := strings.Fields(string(line))
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if _, err := ParseSPKI(words[0]); err != nil {
			return nil, fmt.Errorf("read what was issued: %s is no list of certificates: %w", path, err)
		}
	}
	return data, nil
}
