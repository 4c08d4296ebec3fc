// SPDX-License-Identifier: Apache-2.0

package optest

import "github.com/volferry/volferry/internal/op"

// NewRunner returns a runner that knows no op kind, for what registers its own. One whose
// ops run is stopped by the test.
func NewRunner(journal op.Journal) *op.Runner {
	r, err := op.New(op.Config{Journal: journal})
	if err != nil {
		panic(err) // the only error is that there is no journal
	}
	return r
}
