// SPDX-License-Identifier: Apache-2.0

package optest

import "github.com/volferry/volferry/internal/op"

// NewRunner returns a runner that knows no op kind, for code that registers its own. A test
// that lets ops run stops it.
func NewRunner(journal op.Journal) *op.Runner {
	r, err := op.New(op.Config{Journal: journal})
	if err != nil {
		panic(err) // the only error is that there is no journal
	}
	return r
}
