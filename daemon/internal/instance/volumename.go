// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
)

const domainNameBytes = 128

// volumeName returns the name for the volume of a domain's disk. Characters that libvirt permits
// in a domain's name, but a volume's name lacks, become hyphens, and the beginning of the domain's
// id makes the name unique.
func volumeName(dom *hv.Domain, target string) string {
	plain := strings.Map(func(r rune) rune {
		if isPlain(r) || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, dom.Name)
	plain = strings.TrimLeft(plain, "._-")
	plain = plain[:min(len(plain), domainNameBytes)]
	if plain != dom.Name {
		plain = strings.Trim(plain, "-") + "-" + dom.ID[:8]
	}
	return strings.TrimLeft(plain, "-") + "-" + target
}

func isPlain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
