// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// cured adds to an error the commands, in their order, that an operator has to give before the
// call that failed is made again. Each has been tried where it is printed
// (TestTheCommandsThatAnErrorNamesBringTheMigrationToItsEnd).
func cured(err *api.Error, commands ...string) *api.Error {
	return err.With(api.DetailCure, strings.Join(commands, api.CureSeparator))
}
