// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// domainNameBytes of a domain's name at most are in the name of its volumes, which
// has a bound.
const domainNameBytes = 128

// volumeName is how the volume of a domain's disk is called. libvirt lets a domain
// have any name, and a volume's is plain letters, digits, dots, underscores and hyphens:
// what is none of them becomes a hyphen, and the beginning of the domain's id tells it
// from another domain that would be called the same then.
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
