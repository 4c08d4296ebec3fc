// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNoOtherFileIsReadOrWrittenThroughTheListOfCertificates: otherwise users with write access to
// the directory could make root copy any file.
func TestNoOtherFileIsReadOrWrittenThroughTheListOfCertificates(t *testing.T) {
	const secret = "-----BEGIN PRIVATE KEY-----\n"
	id := Identity{Kind: KindHost, ID: "i", Name: "a", SPKI: strings.Repeat("ab", 32), NotAfter: time.Now()}
	for name, plant := range map[string]func(secret, list string) error{
		"a link":       os.Symlink,
		"another name": os.Link,
		"its content":  func(_, list string) error { return os.WriteFile(list, []byte(secret), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			key, list := filepath.Join(t.TempDir(), "ca.key"), filepath.Join(dir, IssuedFile)
			if err := os.WriteFile(key, []byte(secret), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := plant(key, list); err != nil {
				t.Fatal(err)
			}
			err := Record(dir, id)
			if err == nil || strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("recorded: %v", err)
			}
			if _, err := Issued(dir, "i"); err == nil {
				t.Error("the list was read")
			}
			if now, err := os.ReadFile(key); err != nil || string(now) != secret {
				t.Errorf("the other file is %q now, %v", now, err)
			}
		})
	}
}

func TestTheListOfCertificatesIsItsOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	if err := Record(dir, Identity{Kind: KindHost, ID: "i", Name: "a", SPKI: strings.Repeat("ab", 32), NotAfter: time.Now()}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, IssuedFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
