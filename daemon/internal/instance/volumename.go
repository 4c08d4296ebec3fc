// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// domainNameBytes bounds how much of a domain's name is in the names of its volumes,
// which are bounded themselves.
const domainNameBytes = 128

// volumeName names the volume of a domain's disk. libvirt lets a domain have any name;
// the name of a volume has plain letters, digits, dots, underscores and hyphens only. Other
// characters become hyphens, and the beginning of the domain's id then keeps the name apart
// from those of other domains.
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
