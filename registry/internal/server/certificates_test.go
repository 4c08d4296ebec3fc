// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/registry/internal/server"
)

func TestStatusAndMetricsHaveTheEndsOfCertificates(t *testing.T) {
	s := newSite(t)
	now := time.Now()
	lifetimes := func() []mtls.Lifetime {
		return []mtls.Lifetime{
			{Name: "server", From: now.Add(-25 * mtls.Day), Until: now.Add(5*mtls.Day + time.Hour)},
			{Name: "authority", From: now, Until: now.Add(3650 * mtls.Day)},
		}
	}
	s.server.Certificates = lifetimes
	var st api.Status
	decode(t, s.ok(t, "GET", "/v1/status", ""), &st)
	got := map[string]api.Check{}
	for _, p := range st.Parts {
		got[p.Name] = p
	}
	if c := got["server certificate"]; c.Status != "warn" || !strings.Contains(c.Message, "5 days left") || !strings.Contains(c.Advice, "issue-cert server") {
		t.Errorf("the server's: %+v", c)
	}
	if c := got["authority certificate"]; c.Status != "ok" || st.Degraded {
		t.Errorf("the authority's: %+v, degraded %t", c, st.Degraded)
	}
	m := server.NewMetrics("1")
	m.WatchCertificates(lifetimes)
	if n, err := testutil.GatherAndCount(m.Registry, "volferry_registry_certificate_expiry_timestamp_seconds"); err != nil || n != 2 {
		t.Errorf("%d ends in the metrics, %v", n, err)
	}
}
