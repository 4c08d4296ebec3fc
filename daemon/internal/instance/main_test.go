// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"os"
	"testing"

	"github.com/volferry/volferry/internal/memtest"
)

func TestMain(m *testing.M) {
	memtest.TempDir()
	os.Exit(m.Run())
}
