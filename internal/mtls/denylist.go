// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/atomicfile"
)

const denyListHead = `# Public keys that the registry refuses, whatever their certificates say: the
# SHA-256 of each in hex, one per line. It is read again as soon as it changes.
# "volferry-registry revoke" adds to it.
`

type denyList map[string]bool

func createDenyList(d *atomicfile.Directory) error {
	// A list of an older authority is kept: it can only refuse.
	if exists, err := d.Exists(DenyListFile); err != nil || exists {
		return err
	}
	return d.Write(DenyListFile, []byte(denyListHead), 0o644)
}

// readDenyList reads the file at path. A missing file is an error: its loss must not admit denied
// callers.
func readDenyList(path string) (denyList, error) {
	data, err := os.ReadFile(path)
	return denyListOf(path, data, err)
}

func denyListOf(path string, data []byte, err error) (denyList, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the deny-list %s is missing; bring it back, or make an empty file if nobody is to be refused", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read deny-list: %w", err)
	}
	list, err := parseDenyList(data)
	if err != nil {
		return nil, fmt.Errorf("read deny-list %s: %w", path, err)
	}
	return list, nil
}

func parseDenyList(data []byte) (denyList, error) {
	list := denyList{}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		text, _, _ := strings.Cut(string(line), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		spki, err := ParseSPKI(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		list[spki] = true
	}
	return list, nil
}

// ParseSPKI validates the SHA-256 of a public key in hex, and returns it in lower case.
func ParseSPKI(text string) (string, error) {
	if sum, err := hex.DecodeString(text); err != nil || len(sum) != 32 {
		return "", fmt.Errorf("%.80q is no SHA-256 in hex", text)
	}
	return strings.ToLower(text), nil
}

// Deny adds a public key to the deny-list in dir, unless the list has it. comment names the
// holder. Deny does not change a list that cannot be read.
func Deny(dir, spki, comment string) (added bool, err error) {
	err = underLock(dir, func(d *atomicfile.Directory) error {
		data, _, err := d.Read(DenyListFile, maxListBytes)
		list, err := denyListOf(d.Path(DenyListFile), data, err)
		if err != nil || list[spki] {
			return err
		}
		if len(data) > 0 && data[len(data)-1] != '\n' {
			data = append(data, '\n')
		}
		data = fmt.Appendf(data, "%s # %s, %s\n", spki, comment, time.Now().UTC().Format(time.RFC3339))
		added = true
		return d.Write(DenyListFile, data, 0o644)
	})
	return added && err == nil, err
}
