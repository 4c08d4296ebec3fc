// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"slices"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/domainfiles"
)

// addFiles adds the files in these descriptions of a domain and in its managed save image: a start
// needs them.
func addFiles(ctx context.Context, s *session, dom golibvirt.Domain, d *hv.Domain, docs ...string) {
	if d.ManagedSave {
		saved, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
			defer s.silent.while(ctx, d.ID)()
			return lv.DomainManagedSaveGetXMLDesc(dom, 0)
		})
		if err != nil {
			d.FilesUnknown = fmt.Sprintf("its managed save image cannot be read: %v", err)
		}
		docs = append(docs, saved)
	}
	for _, doc := range docs {
		named, err := domainfiles.Named(doc)
		if err != nil {
			d.FilesUnknown = err.Error()
		}
		for _, file := range named {
			if file := hv.DomainFile(file); !slices.Contains(d.Files, file) {
				d.Files = append(d.Files, file)
			}
		}
	}
}
