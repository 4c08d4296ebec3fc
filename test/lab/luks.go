// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// LUKS is how a raw image is opened that QEMU encrypts.
type LUKS struct {
	Secret  string // of libvirt's, by its UUID
	KeyFile string // that has the passphrase
}

const luksObject = "passphrase"

// object gives qemu-img the passphrase, which options name.
func (l *LUKS) object() []string {
	return []string{"--object", "secret,id=" + luksObject + ",file=" + l.KeyFile}
}

func (l *LUKS) options(path string) string {
	return "driver=luks,key-secret=" + luksObject + ",file.filename=" + path
}

// Encrypt makes a container at path of a raw volume, which stays as it is. It is opened soon, since
// a test does that often.
func (l *LUKS) Encrypt(ctx context.Context, raw, path string, sizeBytes int64) error {
	create := append([]string{"create", "-q", "-f", "luks", "-o", "key-secret=" + luksObject + ",iter-time=10"}, l.object()...)
	create = append(create, path, strconv.FormatInt(sizeBytes, 10))
	_, err := run(ctx, "qemu-img", create...)
	for range 4 { // a busy processor does not let it measure how fast it hashes
		if err == nil || !strings.Contains(err.Error(), "accurate CPU usage") {
			break
		}
		_, err = run(ctx, "qemu-img", create...)
	}
	if err != nil {
		return fmt.Errorf("make a container: %w", err)
	}
	fill := append([]string{"convert", "-n", "--image-opts", "--target-image-opts"}, l.object()...)
	if _, err := run(ctx, "qemu-img", append(fill, "driver=raw,file.filename="+raw, l.options(path))...); err != nil {
		return fmt.Errorf("fill a container: %w", err)
	}
	return nil
}
