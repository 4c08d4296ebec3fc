// SPDX-License-Identifier: Apache-2.0

package rbd

import "fmt"

// Fingerprint returns a text that distinguishes the image with an id from later images at the
// address.
func Fingerprint(id, path string) string { return "rbd image " + id + " at " + path }

// IDIn returns the id in a Fingerprint, or an error for another text.
func IDIn(fingerprint string) (id string, err error) {
	if _, err := fmt.Sscanf(fingerprint, "rbd image %s at", &id); err != nil {
		return "", fmt.Errorf("%q is no fingerprint of an RBD image: %w", fingerprint, err)
	}
	return id, nil
}
