// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/httpjson"
)

const testHost = "10000000-0000-4000-8000-000000000001"

func certificate(commonName string, uris ...string) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: commonName}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

func TestIdentityOfACertificate(t *testing.T) {
	for uri, want := range map[string]Identity{
		"spiffe://volferry/host/" + testHost:       {Kind: KindHost, ID: testHost, Name: "alpha"},
		"spiffe://volferry/operator/read/alpha":    {Kind: KindOperator, Name: "alpha", Role: httpjson.Read},
		"spiffe://volferry/operator/operate/alpha": {Kind: KindOperator, Name: "alpha", Role: httpjson.Operate},
		"spiffe://volferry/operator/fence/alpha":   {Kind: KindOperator, Name: "alpha", Role: httpjson.Fence},
	} {
		got, err := IdentityOfCertificate(certificate("alpha", uri))
		want.SPKI = got.SPKI
		if err != nil || got != want || len(got.SPKI) != 64 {
			t.Errorf("%s: %+v, %v; want %+v", uri, got, err, want)
		}
	}
}

func TestCertificatesThatAreNobodys(t *testing.T) {
	const good = "spiffe://volferry/host/" + testHost
	authority, server, any := certificate("alpha", good), certificate("alpha", good), certificate("alpha", good)
	authority.IsCA = true
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	any.ExtKeyUsage = nil
	for name, cert := range map[string]*x509.Certificate{
		"an authority":              authority,
		"for servers":               server,
		"for nothing in particular": any,
		"no URI":                    certificate("alpha"),
		"two URIs":                  certificate("alpha", good, good),
		"a URI beside it":           certificate("alpha", good, "https://example.org/"),
		"another domain":            certificate("alpha", "spiffe://example.org/host/"+testHost),
		"domain in capitals":        certificate("alpha", "spiffe://VOLFERRY/host/"+testHost),
		"a port":                    certificate("alpha", "spiffe://volferry:1/host/"+testHost),
		"a user":                    certificate("alpha", "spiffe://root@volferry/host/"+testHost),
		"another scheme":            certificate("alpha", "https://volferry/host/"+testHost),
		"a query":                   certificate("alpha", good+"?x"),
		"an empty query":            certificate("alpha", good+"?"),
		"a fragment":                certificate("alpha", good+"#x"),
		"a longer path":             certificate("alpha", good+"/x"),
		"a slash at the end":        certificate("alpha", good+"/"),
		"a path that goes back":     certificate("alpha", "spiffe://volferry/operator/../host/"+testHost),
		"two slashes":               certificate("alpha", "spiffe://volferry//host/"+testHost),
		"an encoded path":           certificate("alpha", "spiffe://volferry/%68ost/"+testHost),
		"no UUID":                   certificate("alpha", "spiffe://volferry/host/alpha"),
		"a UUID in capitals":        certificate("alpha", "spiffe://volferry/host/1000000A-0000-4000-8000-000000000001"),
		"a UUID in braces":          certificate("alpha", "spiffe://volferry/host/%7B"+testHost+"%7D"),
		"a UUID without hyphens":    certificate("alpha", "spiffe://volferry/host/"+strings.ReplaceAll(testHost, "-", "")),
		"a host without a name":     certificate("", good),
		"a name with a space":       certificate("a b", good),
		"a name with a newline":     certificate("alpha\n", good),
		"a name with a slash":       certificate("a/b", "spiffe://volferry/operator/read/a/b"),
		"a name that is long":       certificate(strings.Repeat("a", 65), good),
		"an unknown role":           certificate("ann", "spiffe://volferry/operator/root/ann"),
		"no role":                   certificate("ann", "spiffe://volferry/operator/ann"),
		"an empty role":             certificate("ann", "spiffe://volferry/operator//ann"),
		"another common name":       certificate("bob", "spiffe://volferry/operator/read/ann"),
		"an encoded name":           certificate("ann", "spiffe://volferry/operator/read/%61nn"),
		"an unknown kind":           certificate("ann", "spiffe://volferry/guest/ann"),
		"nothing":                   certificate("ann", "spiffe://volferry/"),
	} {
		t.Run(name, func(t *testing.T) {
			if id, err := IdentityOfCertificate(cert); err == nil {
				t.Errorf("it is %+v", id)
			}
		})
	}
}

// Only identities that would be issued are accepted: one identity has one spelling.
func FuzzIdentity(f *testing.F) {
	f.Add("spiffe://volferry/host/"+testHost, "alpha")
	f.Add("spiffe://volferry/operator/fence/ann", "ann")
	f.Add("spiffe://volferry/operator/fence/ann?#", "ann")
	f.Add("spiffe://volferry/host/%31", "a\x00")
	f.Fuzz(func(t *testing.T, uri, name string) {
		u, err := url.Parse(uri)
		if err != nil {
			return
		}
		cert := certificate(name)
		cert.URIs = append(cert.URIs, u)
		id, err := IdentityOfCertificate(cert)
		if err != nil {
			return
		}
		if !nameRule.MatchString(id.Name) || id.Name != name || id.uri().String() != u.String() {
			t.Errorf("%q with %q is %+v, which is %s", uri, name, id, id.uri())
		}
		if (id.Kind == KindHost) != (id.ID != "") || (id.Kind == KindOperator) != (id.Role >= httpjson.Read && id.Role <= httpjson.Fence) {
			t.Errorf("%q with %q is %+v", uri, name, id)
		}
		if strings.ContainsAny(id.String(), "\n\r\x00") {
			t.Errorf("the audit trail would have %q", id)
		}
	})
}

func FuzzDenyList(f *testing.F) {
	f.Add([]byte("# nobody\n"))
	f.Add([]byte(strings.Repeat("aB", 32) + " # alpha\r\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseDenyList(data)
		if err != nil {
			return
		}
		for spki := range list {
			if len(spki) != 64 || spki != strings.ToLower(spki) {
				t.Errorf("%q is on the list", spki)
			}
		}
	})
}
