// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
)

const (
	alphaID = "10000000-0000-4000-8000-000000000001"
	betaID  = "10000000-0000-4000-8000-000000000002"
)

// site is an authority with certificates in a directory.
type site struct {
	t   *testing.T
	ca  *mtls.CA
	dir string
}

func newSite(t *testing.T) *site {
	t.Helper()
	ca, err := mtls.CreateCA(filepath.Join(t.TempDir(), "ca"))
	if err != nil {
		t.Fatal(err)
	}
	return &site{t: t, ca: ca, dir: t.TempDir()}
}

// config is that of a daemon that shows the certificate.
func (s *site) config(pair mtls.Pair, err error) *config {
	s.t.Helper()
	if err == nil {
		err = pair.Replace(s.dir, "host")
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "ca.crt"), pair.CA, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	cfg, err := load(s.t, []string{
		"--config", writeConfig(s.t, ""), "--registry", "https://registry.example:7643", "--state-dir", s.dir, "--host-name", "configured",
		"--tls-ca", filepath.Join(s.dir, "ca.crt"), "--tls-cert", filepath.Join(s.dir, "host.crt"), "--tls-key", filepath.Join(s.dir, "host.key"),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return cfg
}

func TestOverTLSTheCertificateSaysWhoTheHostIs(t *testing.T) {
	s := newSite(t)
	cfg := s.config(s.ca.IssueHost(alphaID, "alpha", time.Hour))
	if err := cfg.checkRegistry(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // at the first start, and with what that has kept
		who, err := thisHost(cfg)
		if err != nil || who.id != alphaID || who.name != "alpha" {
			t.Errorf("the host is %+v (%v)", who, err)
		}
	}
	// The same directory, and the socket of a registry on this machine.
	cfg.Registry = "unix:///run/volferry/registry.sock"
	if who, err := thisHost(cfg); err != nil || who.id != alphaID || who.name != "configured" {
		t.Errorf("over the socket the host is %+v (%v)", who, err)
	}
}

func TestTheStateOfAnotherHostIsRefused(t *testing.T) {
	s := newSite(t)
	if _, err := thisHost(s.config(s.ca.IssueHost(alphaID, "alpha", time.Hour))); err != nil {
		t.Fatal(err)
	}
	_, err := thisHost(s.config(s.ca.IssueHost(betaID, "beta", time.Hour)))
	for _, want := range []string{alphaID, betaID, filepath.Join(s.dir, "host-id"), "host.crt", "state_dir"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %s", err, want)
		}
	}
}

func TestTheCertificateOfAnOperatorIsNoHosts(t *testing.T) {
	s := newSite(t)
	cfg := s.config(s.ca.IssueOperator(httpjson.Operate, "eve", time.Hour))
	if err := cfg.checkRegistry(); err == nil || !strings.Contains(err.Error(), "issue-cert host") {
		t.Errorf("got %v", err)
	}
}

func TestDoctorTellsOfACertificateThatEnds(t *testing.T) {
	for status, valid := range map[string]time.Duration{"ok": 30 * 24 * time.Hour, "warn": 6 * 24 * time.Hour} {
		s := newSite(t)
		d := &doctor{cfg: s.config(s.ca.IssueHost(alphaID, "alpha", valid))}
		if c := d.certificate(); c.Status != status || (status == "warn") != (c.Advice != "") {
			t.Errorf("a certificate good for %s: %+v, want %s", valid, c, status)
		}
	}
	s := newSite(t)
	old := s.ca.At(time.Now().Add(-48 * time.Hour))
	if c := (&doctor{cfg: s.config(old.IssueHost(alphaID, "alpha", time.Hour))}).certificate(); c.Status != "fail" {
		t.Errorf("a certificate that has ended: %+v", c)
	}
	if c := (&doctor{cfg: &config{TLSCert: "/nonexistent"}}).certificate(); c.Status != "fail" {
		t.Errorf("no certificate: %+v", c)
	}
}

func TestDoctorTellsOfASharedPoolThatLibvirtDoesNotHave(t *testing.T) {
	d := &doctor{cfg: &config{SharedPools: []string{"san", "sna"}}}
	checks := d.sharedPools([]hv.PoolInfo{{Name: "san"}})
	if len(checks) != 1 || checks[0].Name != "pool sna" || checks[0].Status != "warn" {
		t.Errorf("checks %+v", checks)
	}
}

func TestDoctorTellsWhatAFenceTook(t *testing.T) {
	dir := t.TempDir()
	lost := `{"epoch":2,"lost":[{"instance_id":"i","instance_name":"web","target":"vdb","path":"/nfs/a","volume_name":"data"}]}`
	if err := os.WriteFile(filepath.Join(dir, "uplink.json"), []byte(lost), 0o600); err != nil {
		t.Fatal(err)
	}
	up, err := uplink.New(uplink.Config{HostID: alphaID, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	checks := (&doctor{uplink: up}).lost()
	if len(checks) != 1 || !strings.Contains(checks[0].Message, "data") || !strings.Contains(checks[0].Advice, "detach-disk web vdb") {
		t.Errorf("checks %+v", checks)
	}
}
