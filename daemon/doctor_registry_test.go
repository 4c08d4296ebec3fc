// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/doctor"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/mtls/mtlstest"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/version"
)

// clockOf is a registry with a clock that is ahead of this host's.
type clockOf struct {
	ahead time.Duration
	known bool
}

func (clockOf) Version(context.Context) (string, error)         { return "1.2.3", nil }
func (c clockOf) ClockAhead() (ahead time.Duration, known bool) { return c.ahead, c.known }
func (clockOf) Peer() (protocol.Announcement, bool)             { return protocol.Own(), true }

// oldRegistry is a registry that announces nothing.
type oldRegistry struct{ clockOf }

func (oldRegistry) Peer() (protocol.Announcement, bool) {
	return protocol.Announcement{Protocol: 1}, true
}

func TestDoctorComparesTheClockWithTheRegistrys(t *testing.T) {
	for registry, want := range map[clockOf]string{
		{0, true}:                 "ok",
		{4 * time.Second, true}:   "ok",
		{time.Minute, true}:       "1m0s behind",
		{-90 * time.Second, true}: "1m30s ahead of",
		{0, false}:                "does not send its time",
	} {
		c := (&doctor.Doctor{Client: registry}).Clock()
		if (c.Status == "ok") != (want == "ok") || want != "ok" && !strings.Contains(c.Message, want) {
			t.Errorf("a registry that is ahead by %s (%v): %+v, want %q", registry.ahead, registry.known, c, want)
		}
	}
}

func TestDoctorNamesTheVersionsOfBothSides(t *testing.T) {
	t.Cleanup(func() { version.Version = "" })
	version.Version = "1.2.3"
	d := &doctor.Doctor{Cfg: &config.Config{Registry: "unix:///r"}, Client: clockOf{}}
	if c := d.Versions("1.2.3"); c.Status != "ok" || !strings.Contains(c.Message, "version 1.2.3") {
		t.Errorf("one version: %+v", c)
	}
	if c := d.Versions("1.2.4"); c.Status != "warn" || !strings.Contains(c.Message, "version 1.2.4; this daemon is 1.2.3") {
		t.Errorf("two versions: %+v", c)
	}
	d.Client = oldRegistry{}
	if c := d.Versions("1.2.2"); c.Status != "warn" || !strings.Contains(c.Message, "which lacks "+protocol.Pages) {
		t.Errorf("a registry that lacks something: %+v", c)
	}
}

func TestDoctorNamesACertificateOfAnotherAuthority(t *testing.T) {
	s, other := newSite(t), newSite(t)
	d := &doctor.Doctor{Cfg: s.config(s.ca.IssueHost(alphaID, "alpha", mtls.Day))}
	if c := d.Chain(); len(c) != 1 || c[0].Status != "ok" {
		t.Errorf("as issued: %+v", c)
	}
	d.Cfg.TLSCA = other.config(other.ca.IssueHost(alphaID, "alpha", mtls.Day)).TLSCA
	if c := d.Chain(); len(c) != 1 || c[0].Status != "fail" || !strings.Contains(c[0].Message, "is not of an authority in") {
		t.Errorf("of another authority: %+v", c)
	}
	d.Cfg.TLSKey = other.config(other.ca.IssueHost(alphaID, "alpha", mtls.Day)).TLSKey
	if c := d.Chain(); len(c) != 1 || c[0].Status != "fail" || !strings.Contains(c[0].Message, "with its key") {
		t.Errorf("with another key: %+v", c)
	}
	// Another check reports that it is not valid now.
	d.Cfg = s.config(mtlstest.At(s.ca, time.Now().Add(40*mtls.Day)).IssueHost(alphaID, "alpha", mtls.Day))
	if c := d.Chain(); len(c) != 1 || c[0].Status != "ok" {
		t.Errorf("one that begins later: %+v", c)
	}
	if c := (&doctor.Doctor{Cfg: &config.Config{Registry: "unix:///r"}}).Chain(); len(c) != 0 {
		t.Errorf("without TLS: %+v", c)
	}
}

// TestDoctorAdvisesToStartTheRegistryOnlyWhereNobodyAnswers: a start does not help if the registry
// runs and refuses.
func TestDoctorAdvisesToStartTheRegistryOnlyWhereNobodyAnswers(t *testing.T) {
	away := func() *api.Error { return api.Errorf(api.CodeRegistryUnavailable, "x") }
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"away":            {away(), "start volferry-registry"},
		"no certificate":  {away().With(api.DetailDistrust, api.DistrustsCaller), "issue-cert host"},
		"another site":    {away().With(api.DetailDistrust, api.DistrustsServer), "tls_ca"},
		"fenced":          {api.Errorf(api.CodeStaleEpoch, "x"), "comes back by itself"},
		"another's name":  {fmt.Errorf("report: %w", api.Errorf(api.CodeNotYourHost, "x")), "refuses this host"},
		"not even an api": {errors.New("x"), "log of volferry-registry"},
	} {
		if got := doctor.RegistryAdvice(c.err); !strings.Contains(got, c.want) || name != "away" && strings.Contains(got, "start volferry-registry") {
			t.Errorf("%s: the advice is %q, want %q", name, got, c.want)
		}
	}
}

// TestDoctorSaysWhereTheRegistryIsAndWhereASecondOneAnswers: URLs that do not answer are no fault.
func TestDoctorSaysWhereTheRegistryIsAndWhereASecondOneAnswers(t *testing.T) {
	away := api.Errorf(api.CodeRegistryUnavailable, "cannot connect to b")
	d := &doctor.Doctor{Probe: func(context.Context) []client.Endpoint {
		return []client.Endpoint{
			{URL: "a", InUse: true},
			{URL: "b", Err: away},
			{URL: "c", Err: client.ErrTwoRegistries},
			{URL: "d", Err: api.Errorf(api.CodeRegistryUnavailable, "another registry").With(api.DetailDistrust, api.DistrustsServer)},
		}
	}}
	got := d.Endpoints(t.Context())
	if len(got) != 4 {
		t.Fatalf("checks = %+v", got)
	}
	for i, want := range []struct{ status, text string }{{"ok", "a is in use"}, {"ok", "b is not in use: cannot connect"}, {"fail", "c: another process"}, {"fail", "another registry"}} {
		if got[i].Status != want.status || !strings.Contains(got[i].Message, want.text) {
			t.Errorf("check %d = %+v, want %+v", i, got[i], want)
		}
	}
	if got := (&doctor.Doctor{}).Endpoints(t.Context()); len(got) > 0 {
		t.Errorf("without URLs: %+v", got)
	}
}
