// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
)

// selfSigned returns a self-signed certificate, with its files, for a server called localhost and
// for a client.
func selfSigned(t *testing.T) (pair tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}, write("tls.crt", "CERTIFICATE", cert), write("tls.key", "PRIVATE KEY", private)
}

func TestRegistryOnAnotherMachineIsShownTheOperatorsCertificate(t *testing.T) {
	pair, cert, key := selfSigned(t)
	shown := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = len(r.TLS.PeerCertificates)
		_, _ = w.Write([]byte(`{"schema_version":1,"policies":[{"name":"multiattach","enabled":true}]}`))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	defer server.Close()
	socket := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	t.Setenv("VOLFERRY_KEY", key)

	var stdout, stderr bytes.Buffer
	app := newApp(&stdout, &stderr)
	line := []string{session.Program, "--socket", socket, "--ca", cert, "--cert", cert, "policy", "list"}
	if err := app.RunContext(t.Context(), cmdline.Arrange(app, line)); err != nil {
		t.Fatal(err)
	}
	if shown != 1 || !strings.Contains(stdout.String(), "multiattach") {
		t.Errorf("%d certificates were shown, and stdout is %q", shown, &stdout)
	}

	server.Close()
	err := app.RunContext(t.Context(), cmdline.Arrange(app, line))
	if body, exit := classify(err); exit != api.ExitUnavailable || body.Code != api.CodeRegistryUnavailable || !strings.Contains(body.Message, socket) {
		t.Errorf("nobody there: %v, exit status %d; want registry_unavailable that names %s", err, exit, socket)
	}
}
