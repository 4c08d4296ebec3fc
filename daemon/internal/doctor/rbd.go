// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
)

// Clusters checks that the configured Ceph clusters can be reached.
func (d *Doctor) Clusters(ctx context.Context) (out []api.Check) {
	for _, id := range d.Cfg.RBDClusters.IDs() {
		name := "Ceph cluster " + id
		if err := d.Storage.Network.RBD.Check(ctx, id); err != nil {
			out = append(out, api.Check{
				Name: name, Status: "fail", Message: fmt.Sprintf("its RBD images cannot be moved: %v", err),
				Advice: "compare rbd_clusters in volferryd.toml with the cluster (ceph fsid, ceph mon dump) and with libvirt's secret (virsh secret-list); running guests are not affected",
			})
			continue
		}
		out = append(out, ok(name, "the cluster answers with libvirt's secret, and has the configured id"))
	}
	return out
}
