// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
)

// What is not done with exports of NBD servers and with RBD images, and why, is in DESIGN.md of package
// location.

// checkFromExport refuses what is not done with a src that is at an address: it is its server's to remove.
func checkFromExport(s *steps.Spec) error {
	if api.IsNetwork(s.Src.Path) && s.DeleteSource {
		return api.Errorf(api.CodeInvalidArgument, "%s is %s, which is removed where it was made; leave out --delete-source", s.Src.Path, api.AddressKind(s.Src.Path))
	}
	return nil
}
