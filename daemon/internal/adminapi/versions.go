// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"fmt"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
)

// VersionsChecks checks the registry's version and features. It returns no check before the
// registry's first answer.
func VersionsChecks(peer func() (protocol.Announcement, bool)) []api.Check {
	if peer == nil {
		return nil
	}
	registry, known := peer()
	if !known {
		return nil
	}
	own := protocol.Own()
	check := api.Check{Name: "versions", Status: "ok", Message: fmt.Sprintf("the registry is %s, and this daemon %s", registry, own)}
	switch lacks := registry.LacksOfOurs(); {
	case len(lacks) > 0:
		check.Status = "warn"
		check.Message += "; the registry lacks " + strings.Join(lacks, ", ")
		check.Advice = "upgrade the registry: what needs it is refused (docs/how-to/upgrade.md)"
	case registry.Version == own.Version:
		check.Message = "registry and daemon are " + own.Version
	case registry.IsNewer():
		check.Message += "; it is newer"
	}
	return []api.Check{check}
}
