// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/process"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

// domains implements hv.Domains, and reads the descriptions of domains for the other types.
type domains struct {
	connection *connection
	clusters   rbd.Clusters
	// listedTimeout is how long one domain may delay the list of all domains. libvirt keeps a
	// domain locked while it works on storage that does not answer.
	listedTimeout time.Duration
}

// calls makes calls on a domain, or on a live disk of it, and explains libvirt's refusals.
type calls struct {
	connection *connection
	library    *library
	domains    *domains
}

// Processes reads what the kernel knows of processes. process.Dir implements it, if it has the
// privileges.
type Processes interface {
	Claims(ctx context.Context, id string, images []process.Image) ([]process.Claim, error)
	About(ctx context.Context, pid int) (process.About, error)
	ClosedFor(ctx context.Context, pid int, image process.Image) (time.Duration, error)
}

type guestProcesses struct {
	connection *connection
	library    *library
	domains    *domains
	calls      *calls
	clusters   rbd.Clusters
	kernel     Processes
	// qemuDefault is QEMU's default user, nil until libvirt has reported it.
	qemuDefault atomic.Pointer[hv.ProcessUser]
}

// leases drops the leases that prevent a change of a guest's images.
type leases struct {
	library   *library
	domains   *domains
	processes *guestProcesses
	clusters  rbd.Clusters
	log       *slog.Logger
	// socket is virtlockd's. libvirt too expects it in the directory of its own socket.
	socket string
}

type definitions struct {
	connection *connection
	library    *library
	domains    *domains
	calls      *calls
	clusters   rbd.Clusters
}

type plug struct {
	connection *connection
	library    *library
	domains    *domains
	calls      *calls
	leases     *leases
	clusters   rbd.Clusters
}

// chains implements hv.Chains, except CanSwitch; see leases.
type chains struct {
	connection *connection
	library    *library
	domains    *domains
	calls      *calls
	leases     *leases
	processes  *guestProcesses
	clusters   rbd.Clusters
}

type blockJobs struct {
	connection *connection
	calls      *calls
	leases     *leases
	clusters   rbd.Clusters
}

type writeLimits struct {
	connection *connection
	calls      *calls
}

type tracker struct {
	library *library
	domains *domains
	calls   *calls
	// reading permits one read of a bitmap at a time for each domain.
	reading gate
}

type power struct {
	domains *domains
	calls   *calls
	leases  *leases
}

type memory struct {
	connection *connection
	domains    *domains
	calls      *calls
	processes  *guestProcesses
	clusters   rbd.Clusters
}

type pools struct {
	connection *connection
	library    *library
	// busy permits one call at a time for each pool.
	busy gate
}

// host implements hv.Host, except Up, Answers and Events; see connection.
type host struct {
	connection *connection
	library    *library
	processes  *guestProcesses
}
