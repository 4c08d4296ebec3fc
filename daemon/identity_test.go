// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/doctor"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/mtls/mtlstest"
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
	ca, err := mtls.CreateCA(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &site{t: t, ca: ca, dir: t.TempDir()}
}

// config returns the configuration of a daemon with the certificate.
func (s *site) config(pair mtls.Pair, err error) *config.Config {
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

// registered stores the state of a daemon that a registry has answered.
func (s *site) registered() {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "uplink.json"), []byte(`{"epoch":1}`), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func TestOverTLSTheCertificateSaysWhoTheHostIs(t *testing.T) {
	s := newSite(t)
	cfg := s.config(s.ca.IssueHost(alphaID, "alpha", time.Hour))
	if err := cfg.CheckRegistry(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // at the first start, and with the state stored then
		who, err := thisHost(cfg)
		if err != nil || who.id != alphaID || who.name != "alpha" {
			t.Errorf("the host is %+v (%v)", who, err)
		}
	}
	// The same directory, with a registry's socket on this machine.
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
	s.registered()
	_, err := thisHost(s.config(s.ca.IssueHost(betaID, "beta", time.Hour)))
	for _, want := range []string{alphaID, betaID, filepath.Join(s.dir, "host-id"), "host.crt", "state_dir", "--id " + alphaID} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %s", err, want)
		}
	}
}

// A package starts the daemon before the host has its certificate.
func TestAnIDThatNoRegistryKnowsGivesWayToTheCertificate(t *testing.T) {
	s := newSite(t)
	cfg := s.config(s.ca.IssueHost(betaID, "beta", time.Hour))
	own := *cfg
	own.Registry = "unix:///run/volferry/registry.sock"
	made, err := thisHost(&own)
	if err != nil || made.id == betaID {
		t.Fatalf("without a certificate the host is %+v (%v)", made, err)
	}
	if who, err := thisHost(cfg); err != nil || who.id != betaID {
		t.Errorf("with its first certificate the host is %+v (%v)", who, err)
	}
	s.registered()
	if who, err := thisHost(&own); err != nil || who.id != betaID {
		t.Errorf("from then on the host is %+v (%v)", who, err)
	}
}

func TestTheCertificateOfAnOperatorIsNoHosts(t *testing.T) {
	s := newSite(t)
	cfg := s.config(s.ca.IssueOperator(httpjson.Operate, "eve", time.Hour))
	if err := cfg.CheckRegistry(); err == nil || !strings.Contains(err.Error(), "issue-cert host") {
		t.Errorf("got %v", err)
	}
}

func TestACertificateThatEndsIsTold(t *testing.T) {
	const day = 24 * time.Hour
	for status, since := range map[string]time.Duration{"ok": 0, "warn": 25 * day, "fail": 31 * day} {
		s := newSite(t)
		cfg := s.config(mtlstest.At(s.ca, time.Now().Add(-since)).IssueHost(alphaID, "alpha", 30*day))
		checks := doctor.Certificates(cfg)
		if len(checks) != 2 || checks[0].Status != status || (status == "ok") != (checks[0].Advice == "") {
			t.Errorf("a certificate for 30 days that was made %s ago: %+v, want %s", since, checks, status)
		} else if checks[1].Status != "ok" {
			t.Errorf("its authority is new: %+v", checks[1])
		}
		if _, told := cfg.CertificateEnds()["host"]; !told {
			t.Error("the metrics do not have its end")
		}
	}
	gone := &config.Config{Registry: "https://registry:7643", TLSCert: "/nonexistent", TLSCA: "/nonexistent"}
	if c := doctor.Certificates(gone); len(c) != 2 || c[0].Status != "fail" || len(gone.CertificateEnds()) != 0 {
		t.Errorf("no certificate: %+v", c)
	}
	if c := doctor.Certificates(&config.Config{Registry: "unix:///r"}); len(c) != 0 {
		t.Errorf("certificates of a host that needs none: %+v", c)
	}
}

func TestDoctorTellsOfASharedPoolThatLibvirtDoesNotHave(t *testing.T) {
	d := &doctor.Doctor{Cfg: &config.Config{SharedPools: []string{"san", "sna"}}}
	checks := d.SharedPools([]hv.PoolInfo{{Name: "san"}})
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
	state, err := uplink.OpenState(dir)
	if err != nil {
		t.Fatal(err)
	}
	up, err := uplink.New(uplink.Config{HostID: alphaID, State: state})
	if err != nil {
		t.Fatal(err)
	}
	checks := (&doctor.Doctor{Uplink: up}).Lost()
	if len(checks) != 1 || !strings.Contains(checks[0].Message, "data") || !strings.Contains(checks[0].Advice, "detach-disk --config web vdb;") {
		t.Errorf("checks %+v", checks)
	}
}
