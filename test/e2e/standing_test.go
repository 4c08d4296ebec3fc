// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/beevik/etree"
)

// definitionsStand claims, while the daemon is dead, that every image that a definition of this
// host names is there: whoever starts the instance now starts it.
func (h *host) definitionsStand(t *testing.T) {
	t.Helper()
	for _, name := range strings.Fields(h.virsh(t, "list", "--all", "--name")) {
		xml, err := h.Libvirtd.Virsh(t.Context(), "dumpxml", name, "--inactive")
		if err != nil {
			continue // it has no definition any more, as in a shelve
		}
		doc := etree.NewDocument()
		if err := doc.ReadFromString(xml); err != nil {
			t.Fatalf("parse XML of domain %s: %v", name, err)
		}
		for _, source := range doc.FindElements("/domain/devices/disk//source") {
			for _, attr := range []string{"file", "dev"} {
				path := source.SelectAttrValue(attr, "")
				if path == "" {
					continue
				}
				if _, err := os.Stat(path); err != nil {
					t.Errorf("with the daemon dead the definition of %s names %s: %v", name, path, err)
				}
			}
		}
	}
}
