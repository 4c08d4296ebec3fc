// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"testing"

	"github.com/volferry/volferry/test/machine"
	"github.com/volferry/volferry/test/site"
)

// A machine that is prepared as the page says has no registry without its filesystem, and none
// that comes back while that is taken away, whoever calls it. A filesystem in memory stands for
// the replicated storage: there is no cluster here.
func TestRegistryStartsAndStopsWithItsFilesystemAsThePageSays(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	machine.Require(t)
	m := machine.Start(t, machine.Config{Name: "reg-a"})
	if err := m.CopyIn(t.Context(), sources, packages(t, "volferry-registry")...); err != nil {
		t.Fatal(err)
	}
	p := openPage(t, "docs/how-to/run-the-registry-highly-available.md", &site.Reader{Shell: shellIn(m, sources)})
	p.does(t, "groupadd")
	const noCluster = "there is no cluster"
	for _, begins := range []string{"pcs resource create registry-drbd", "rbd create", "[Unit]", "pcs resource create registry-rbd", "pcs stonith", "pcs resource create registry-fs", "pcs constraint colocation", "pcs constraint location"} {
		p.leaves(t, begins, noCluster)
	}
	p.assertAllDone(t)

	sh(t, m, `
		if systemctl start volferry-registry.service; then echo 'it starts without its filesystem'; exit 1; fi
		test ! -e /var/lib/volferry-registry/registry.db
		mkdir /srv/replicated
		mount -t tmpfs -o mode=0700,uid=640,gid=640 replicated /srv/replicated
		mount --bind /srv/replicated /var/lib/volferry-registry
		runuser -u volferry-registry -- volferry-registry init-ca --server-name localhost
		umount /var/lib/volferry-registry`)
	units := "volferry-registry.service volferry-registry.socket volferry-registry-tls.socket volferry-registry-metrics.socket"
	sh(t, m, fmt.Sprintf(`
		touch /run/calls
		# Somebody calls the registry all the time, as hosts do.
		bash -c 'while [ -e /run/calls ]; do for port in 7643 9644; do ( : </dev/tcp/127.0.0.1/$port ); done; done' >/dev/null 2>&1 &
		trap 'rm -f /run/calls' EXIT
		for round in 1 2 3 4 5; do
			mount --bind /srv/replicated /var/lib/volferry-registry
			systemctl start volferry-registry.service
			for unit in %[1]s; do systemctl is-active $unit; done
			systemctl stop volferry-registry.service
			umount /var/lib/volferry-registry
			# systemctl does not wait for the sockets, which stop with the service.
			for unit in %[1]s; do
				for try in $(seq 300); do systemctl is-active $unit || continue 2; sleep 0.1; done
				echo "$unit outlives the service"; exit 1
			done
			if pidof volferry-registry; then echo 'the registry came back'; exit 1; fi
		done`, units))
}
