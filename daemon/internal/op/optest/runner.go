// SPDX-License-Identifier: Apache-2.0

package optest

import "github.com/volferry/volferry/daemon/internal/op"

// NewRunner returns a runner without op kinds, for code that registers its own. A test that runs
// ops has to stop it.
func NewRunner(journal op.Journal) *op.Runner {
	r, err := op.New(op.Config{Journal: journal})
	if err != nil {
		panic(err) // the only error is a missing journal
	}
	return r
}
