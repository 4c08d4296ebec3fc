// SPDX-License-Identifier: Apache-2.0

package location

import (
	"path/filepath"
	"strings"
)

func below(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(filepath.Clean(dir), "/")+"/")
}
