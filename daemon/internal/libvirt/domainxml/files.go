// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/domainfiles"
)

// FilesOf returns the files that a description of a domain names, its disks too.
func FilesOf(doc string) ([]hv.DomainFile, error) {
	named, err := domainfiles.Named(doc)
	files := make([]hv.DomainFile, 0, len(named))
	for _, f := range named {
		files = append(files, hv.DomainFile(f))
	}
	return files, err
}
