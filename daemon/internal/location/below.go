// SPDX-License-Identifier: Apache-2.0

package location

import (
	"path/filepath"
	"strings"
)

// below reports whether a path is below a directory, by the text of both.
func below(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(filepath.Clean(dir), "/")+"/")
}
