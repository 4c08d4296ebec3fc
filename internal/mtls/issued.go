// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/atomicfile"
)

// IssuedFile is the file that lists the certificates that were issued, for Issued.
const IssuedFile = "issued"

const issuedHead = `# The certificates of hosts and operators that were issued here: the SHA-256 of the
# public key, the end, and whose it is. "volferry-registry revoke HOST-ID" looks here for
# all that a host was ever given.
`

// Record notes in dir that a certificate was issued. Call it before the certificate is
// given away: a certificate that is not on record cannot be denied.
func Record(dir string, id Identity) error {
	return underLock(dir, func() error {
		path := filepath.Join(dir, IssuedFile)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			data, err = []byte(issuedHead), nil
		}
		if err != nil {
			return fmt.Errorf("read what was issued: %w", err)
		}
		if len(data) > 0 && data[len(data)-1] != '\n' {
			data = append(data, '\n')
		}
		data = fmt.Appendf(data, "%s %s %s\n", id.SPKI, id.NotAfter.UTC().Format(time.RFC3339), id)
		return atomicfile.Write(path, data, 0o644)
	})
}

// Issued returns the public keys of the recorded certificates of a host, by the host's id.
func Issued(dir, hostID string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, IssuedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was issued: %w", err)
	}
	var keys []string
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
