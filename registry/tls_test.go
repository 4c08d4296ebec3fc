// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/mtls"
)

// startTLS starts a registry that also listens for other hosts, and returns its address.
func startTLS(t *testing.T, dir string, args ...string) (_ *program, target string) {
	t.Helper()
	tls := filepath.Join(dir, "tls")
	if _, err := os.Stat(tls); errors.Is(err, os.ErrNotExist) {
		okay(t, "init-ca", "--server-name", "localhost", "--tls-dir", tls)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, dir, append([]string{"--listen", address, "--tls-dir", tls}, args...)...), "https://localhost:" + port
}

// as returns a client of target with a new certificate.
func as(t *testing.T, dir, target string, issue ...string) (_ *client.Registry, cert string) {
	t.Helper()
	out := t.TempDir()
	okay(t, append([]string{"issue-cert", "--tls-dir", filepath.Join(dir, "tls"), "--out", out}, issue...)...)
	base := filepath.Join(out, issue[0])
	r := must(client.NewRegistry(target, client.TLS(filepath.Join(out, "ca.crt"), base+".crt", base+".key")))(t)
	t.Cleanup(r.Close)
	if err := untilAnswered(t, func() error { _, err := r.Version(t.Context()); return err }); err != nil {
		t.Fatal(err)
	}
	return r, base + ".crt"
}

func TestHostsAndOperatorsComeOverTLS(t *testing.T) {
	dir := t.TempDir()
	p, target := startTLS(t, dir)
	defer p.end(t)
	host, cert := as(t, dir, target, "host", "a", "--id", hostID)
	reader, _ := as(t, dir, target, "operator", "ann", "--role", "read")
	operator, _ := as(t, dir, target, "operator", "bob", "--role", "operate")

	report := api.HostReport{ID: hostID, Name: "a"}
	if h, err := host.Report(t.Context(), report); err != nil || h.Epoch != 1 {
		t.Errorf("report = %+v, %v", h, err)
	}
	if hosts := must(reader.Hosts(t.Context()))(t); len(hosts) != 1 || hosts[0].ID != hostID {
		t.Errorf("hosts = %+v", hosts)
	}
	in := api.VolumeTypeCreate{Name: "fast"}
	for who, r := range map[string]*client.Registry{"host": host, "reader": reader} {
		if _, err := r.CreateType(t.Context(), "op-"+who, in); api.CodeOf(err) != api.CodePermissionDenied {
			t.Errorf("a type made by a %s: %v", who, err)
		}
	}
	must(operator.CreateType(t.Context(), "op-1", in))(t)

	okay(t, "revoke", cert, "--tls-dir", filepath.Join(dir, "tls"))
	if _, err := host.Report(t.Context(), report); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("a report on a connection that is open, after the revocation: %v", err)
	}
	if _, err := host.Report(t.Context(), report); api.CodeOf(err) != api.CodeRegistryUnavailable || !strings.Contains(err.Error(), "refused us") {
		t.Errorf("a report on a new connection: %v", err)
	}
	p.log.await("was revoked")
}

func TestACallerWithAllItsConnectionsIsRefusedAloneAndLogged(t *testing.T) {
	dir := t.TempDir()
	p, target := startTLS(t, dir, "--max-connections-per-caller", "1")
	defer p.end(t)
	ask := func(r *client.Registry) error {
		var v string
		return r.Do(t.Context(), "GET", "/v1/version", nil, &v)
	}
	ann, cert := as(t, dir, target, "operator", "ann", "--role", "read")
	again := must(client.NewRegistry(target, client.TLS(filepath.Join(filepath.Dir(cert), "ca.crt"), cert, strings.TrimSuffix(cert, ".crt")+".key")))(t)
	defer again.Close()
	if err := ask(again); api.CodeOf(err) != api.CodeRegistryUnavailable {
		t.Errorf("a second connection: %v", err)
	}
	bob, _ := as(t, dir, target, "operator", "bob", "--role", "read")
	for who, r := range map[string]*client.Registry{"the first connection": ann, "another caller": bob} {
		if err := ask(r); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	p.log.await("operator=ann role=read has 1 connection")
}

func TestRegistryListensForHostsWhereItHasACertificate(t *testing.T) {
	dir := t.TempDir()
	tls := filepath.Join(dir, "tls")
	check := func(args ...string) error {
		_, err := output(t, append([]string{"check-config", "--config", os.DevNull}, args...)...)
		return err
	}
	for _, listen := range []string{"auto", "", "off"} {
		if err := check("--listen", listen, "--tls-dir", tls); err != nil {
			t.Errorf("listen %q without a certificate: %v", listen, err)
		}
	}
	if err := check("--listen", ":7643", "--tls-dir", tls); err == nil || !strings.Contains(err.Error(), "init-ca") {
		t.Errorf("an address without a certificate: %v", err)
	}
	if address, err := (&config{Listen: "auto", TLSDir: tls}).address(); address != "" || err != nil {
		t.Errorf("auto without a certificate is %q, %v", address, err)
	}
	okay(t, "init-ca", "--server-name", "localhost", "--tls-dir", tls)
	if address, err := (&config{Listen: "auto", TLSDir: tls}).address(); address != ":7643" || err != nil {
		t.Errorf("auto with a certificate is %q, %v", address, err)
	}
	for _, listen := range []string{"auto", ":7643", "127.0.0.1:1"} {
		if err := check("--listen", listen, "--tls-dir", tls); err != nil {
			t.Errorf("listen %q: %v", listen, err)
		}
	}
	if err := check("--listen", "7643", "--tls-dir", tls); err == nil || !strings.Contains(err.Error(), "listen is") {
		t.Errorf("no address: %v", err)
	}
	for _, file := range []string{mtls.DenyListFile, "ca.crt", "server.key"} {
		path := filepath.Join(tls, file)
		must(0, os.Rename(path, path+".away"))(t)
		if err := check("--tls-dir", tls); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("without %s: %v", file, err)
		}
		must(0, os.Rename(path+".away", path))(t)
	}
}

func TestAcceptRestoreNeedsAClosedDatabaseAndEvidence(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "state", "registry.db")
	p := start(t, dir)
	if _, err := output(t, "accept-restore", "--db", db, "--evidence", "looked at every host"); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("while the registry runs: %v", err)
	}
	p.end(t)
	if _, err := output(t, "accept-restore", "--db", db); err == nil || !strings.Contains(err.Error(), "--evidence") {
		t.Errorf("without evidence: %v", err)
	}
	if _, err := output(t, "accept-restore", "--db", filepath.Join(dir, "none.db"), "--evidence", "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a database: %v", err)
	}
	if _, err := output(t, "accept-restore", "--db", db, "--evidence", "looked at every host"); err == nil || !strings.Contains(err.Error(), "--without-proof") {
		t.Errorf("where no host has shown anything: %v", err)
	}
	if out := okay(t, "accept-restore", "--without-proof", "--db", db, "--evidence", "looked at every host"); !strings.Contains(out, "timeline 2") {
		t.Errorf("it says %q", out)
	}
	p = start(t, dir)
	defer p.end(t)
	events := must(p.Events(t.Context(), 0))(t)
	if len(events) == 0 || !strings.Contains(events[len(events)-1].Who, "uid=") {
		t.Errorf("events = %+v", events)
	}
}
