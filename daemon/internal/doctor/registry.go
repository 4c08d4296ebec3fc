// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/version"
)

func (d *Doctor) registry(ctx context.Context) []api.Check {
	const name = "registry"
	if err := d.Uplink.Refresh(ctx); err != nil {
		return []api.Check{{Name: name, Status: "fail", Message: err.Error(), Advice: RegistryAdvice(err)}}
	}
	theirs, err := d.Client.Version(ctx)
	if err != nil {
		return []api.Check{{Name: name, Status: "fail", Message: err.Error(), Advice: RegistryAdvice(err)}}
	}
	return append([]api.Check{d.Versions(theirs), d.Clock()}, d.Uplink.ViewChecks()...)
}

// Endpoints checks each URL of the registry, if several are configured, and reports if two
// different registry processes answer.
func (d *Doctor) Endpoints(ctx context.Context) []api.Check {
	const name = "registry URLs"
	if d.Probe == nil {
		return nil
	}
	var out []api.Check
	for _, e := range d.Probe(ctx) {
		switch {
		case errors.Is(e.Err, client.ErrTwoRegistries):
			out = append(out, api.Check{
				Name: name, Status: "fail", Message: e.URL + ": " + e.Err.Error(),
				Advice: "stop one of the two registries at once, and keep its machine off the database: they change two copies of the database (docs/how-to/run-the-registry-highly-available.md)",
			})
		case e.Err != nil && api.AsError(e.Err).Details[api.DetailDistrust] != nil:
			out = append(out, api.Check{Name: name, Status: "fail", Message: e.Err.Error(), Advice: RegistryAdvice(e.Err)})
		case e.Err != nil:
			out = append(out, ok(name, e.URL+" is not in use: "+e.Err.Error()))
		case e.InUse:
			out = append(out, ok(name, e.URL+" is in use"))
		default:
			out = append(out, ok(name, e.URL+" leads to the same registry"))
		}
	}
	return out
}

// RegistryAdvice returns the advice for an error of the registry.
func RegistryAdvice(err error) string {
	const refused = ` (docs/how-to/several-hosts.md, "When a host is refused")`
	var e *api.Error
	switch {
	case !errors.As(err, &e):
		return "read the log of volferry-registry"
	case e.Details[api.DetailDistrust] == api.DistrustsCaller:
		return "the registry runs, and refuses this host: read the log of the registry, and give this host a valid certificate, with volferry-registry issue-cert host NAME --replace" + refused
	case e.Details[api.DetailDistrust] == api.DistrustsServer:
		return "this host does not trust the program that answers there: correct the certificate of the registry, or the setting tls_ca or registry" + refused
	case e.Code == api.CodeStaleEpoch:
		return "the host comes back by itself when libvirt and the registry answer"
	case e.Code == api.CodeRegistryUnavailable && e.Details[api.DetailReportFirst] != true:
		return "start volferry-registry, or correct the setting registry"
	}
	return "the registry answers, and refuses this host; the log of the registry has more" + refused
}

// Versions compares the versions of registry and daemon.
func (d *Doctor) Versions(registry string) api.Check {
	const name = "registry"
	connected := "connected at " + d.Cfg.Registry + ", version " + registry
	peer, _ := d.Client.Peer() // it has answered
	if lacks := peer.LacksOfOurs(); len(lacks) > 0 {
		return api.Check{
			Name: name, Status: "warn", Message: connected + ", which lacks " + strings.Join(lacks, ", ") + "; this daemon is " + version.String(),
			Advice: "upgrade the registry: requests that need these features are refused (docs/how-to/upgrade.md)",
		}
	}
	if own := version.String(); own != registry {
		return api.Check{
			Name: name, Status: "warn", Message: connected + "; this daemon is " + own,
			Advice: "run the same version on all machines of the site after an upgrade",
		}
	}
	return ok(name, connected)
}

const clockTolerance = 5 * time.Second

// Clock compares the clocks of host and registry. Moves do not depend on clocks, but people and
// certificates do.
func (d *Doctor) Clock() api.Check {
	const name = "clock"
	ahead, known := d.Client.ClockAhead()
	if !known {
		return api.Check{Name: name, Status: "warn", Message: "the registry does not send its time"}
	}
	if ahead.Abs() <= clockTolerance {
		return ok(name, "this host's clock agrees with the registry's")
	}
	word := "behind"
	if ahead < 0 {
		word = "ahead of"
	}
	return api.Check{
		Name: name, Status: "warn",
		Message: fmt.Sprintf("this host's clock is %s %s the registry's: the times of events cannot be compared, and certificates may become valid or expire at the wrong time",
			ahead.Abs().Round(time.Second), word),
		Advice: "have both machines follow the same time servers (timedatectl, chronyc tracking)",
	}
}

// Chain checks that this host's certificate, its key and the authority belong together.
func (d *Doctor) Chain() []api.Check {
	const name = "certificate chain"
	if !d.Cfg.OverTLS() {
		return nil
	}
	if err := mtls.CheckChain(d.Cfg.TLSCA, d.Cfg.TLSCert, d.Cfg.TLSKey); err != nil {
		return []api.Check{{
			Name: name, Status: "fail", Message: err.Error(),
			Advice: "copy ca.crt of the registry to tls_ca, and host.crt and host.key of issue-cert to tls_cert and tls_key",
		}}
	}
	return []api.Check{ok(name, d.Cfg.TLSCert+" is signed by the authority "+d.Cfg.TLSCA+", and "+d.Cfg.TLSKey+" is its key")}
}
