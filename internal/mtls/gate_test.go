// SPDX-License-Identifier: Apache-2.0

package mtls_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/mtls/mtlstest"
)

func TestCallerIsWhoItsCertificateSays(t *testing.T) {
	s := newSite(t)
	for want, c := range map[string]*caller{
		"host=alpha id=" + hostID:   s.caller(s.host()),
		"operator=ann role=operate": s.caller(s.operator(httpjson.Operate)),
	} {
		got, err := c.ask("GET", "/any")
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("answer = %q, %v; want %q", got, err, want)
		}
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	s := newSite(t)
	callers := map[string]*caller{
		"host": s.caller(s.host()), "read": s.caller(s.operator(httpjson.Read)),
		"operate": s.caller(s.operator(httpjson.Operate)), "fence": s.caller(s.operator(httpjson.Fence)),
	}
	allowed := map[string]string{
		"/read": "read operate fence", "/operate": "operate fence", "/fence": "fence",
		"/any": "host read operate fence", "/own": "host operate fence", "/daemon": "host",
	}
	for _, route := range routes[:6] {
		for who, c := range callers {
			_, err := c.ask(route.Method, route.Path)
			want := api.CodePermissionDenied
			if strings.Contains(" "+allowed[route.Path]+" ", " "+who+" ") {
				want = ""
			}
			if api.CodeOf(err) != want {
				t.Errorf("%s %s as %s: %v, want %q", route.Method, route.Path, who, err, want)
			}
		}
	}
	_, err := callers["host"].ask("GET", "/read")
	if err == nil || !strings.Contains(err.Error(), "certificate of an operator") {
		t.Errorf("a host is not told where to go: %v", err)
	}
}

func TestHostHeaderMayOnlyRepeatTheCertificate(t *testing.T) {
	s := newSite(t)
	const other = "10000000-0000-4000-8000-000000000002"
	h := api.HostHeader
	for name, tc := range map[string]struct {
		pair   mtls.Pair
		header []string
		want   api.Code
	}{
		"the same":            {s.host(), []string{h, hostID}, ""},
		"another":             {s.host(), []string{h, other}, api.CodeNotYourHost},
		"in capitals":         {s.host(), []string{h, "ABC"}, api.CodeNotYourHost},
		"empty":               {s.host(), []string{h, ""}, api.CodeNotYourHost},
		"both":                {s.host(), []string{h, hostID, h, other}, api.CodeNotYourHost},
		"of an operator":      {s.operator(httpjson.Fence), []string{h, hostID}, api.CodePermissionDenied},
		"none of an operator": {s.operator(httpjson.Fence), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.caller(tc.pair).ask("GET", "/any", tc.header...); api.CodeOf(err) != tc.want {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
}

// A request without TLS gets no identity.
func TestCallerWithoutIdentityIsForTheSocketToJudge(t *testing.T) {
	judged := errors.New("judged")
	authorize := mtls.Authorizer(func(*http.Request, httpjson.Route) error { return judged })
	r, err := http.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if err := authorize(r, routes[0]); !errors.Is(err, judged) {
		t.Errorf("error = %v", err)
	}
	// No certificate has a host with an operator's role.
	for _, id := range []mtls.Identity{{}, {Kind: "guest"}, {Kind: mtls.KindOperator}, {Kind: mtls.KindOperator, Role: 99}, {Kind: mtls.KindHost, Role: httpjson.Fence}} {
		if err := authorize(r.WithContext(mtls.WithIdentity(t.Context(), id)), routes[0]); api.CodeOf(err) != api.CodePermissionDenied {
			t.Errorf("%+v: error = %v", id, err)
		}
	}
}

func TestHandshakesThatAreRefused(t *testing.T) {
	s := newSite(t)
	other := newSite(t)
	pairConfig := func(p mtls.Pair) *tls.Config {
		cert := must(tls.X509KeyPair(p.Cert, p.Key))
		c := s.caller(s.host())
		config := c.config()
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		return config
	}
	none := pairConfig(s.host())
	none.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return new(tls.Certificate), nil }
	old := pairConfig(s.host())
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	denied := s.host()
	s.deny(denied)
	for name, tc := range map[string]struct {
		config *tls.Config
		log    string
	}{
		"no certificate":    {none, "didn't provide a certificate"},
		"another authority": {pairConfig(other.host()), "unknown authority"},
		"expired":           {pairConfig(must(mtlstest.At(s.ca, time.Now().Add(-2*mtls.Day)).IssueHost(hostID, "alpha", mtls.Day))), "expired"},
		"not yet good":      {pairConfig(must(mtlstest.At(s.ca, time.Now().Add(mtls.Day)).IssueHost(hostID, "alpha", mtls.Day))), "not yet valid"},
		"a server's":        {pairConfig(must(s.ca.IssueServer([]string{"localhost"}, mtls.Day))), "key usage"},
		"revoked":           {pairConfig(denied), "was revoked"},
		"TLS 1.2":           {old, "unsupported version"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &caller{s: s}
			c.http = c.with(tc.config)
			if who, err := c.ask("GET", "/any"); err == nil || api.CodeOf(err) != api.CodeInternal {
				t.Fatalf("answer = %q, error = %v; want no connection", who, err)
			}
			s.log.await(tc.log)
		})
	}
	if _, err := s.caller(s.host()).ask("GET", "/any"); err != nil {
		t.Errorf("who is right was refused too: %v", err)
	}
}

func TestConnectionThatIsOpenIsLookedAtWithEveryRequest(t *testing.T) {
	for name, change := range map[string]func(s *site, p mtls.Pair){
		"revoked": func(s *site, p mtls.Pair) { s.deny(p) },
		"expired": func(s *site, _ mtls.Pair) { s.setAhead(2 * mtls.Day) },
		"authority replaced": func(s *site, _ mtls.Pair) {
			other := filepath.Join(s.t.TempDir(), "other")
			must(mtls.CreateCA(other, other))
			if err := os.Rename(filepath.Join(other, "ca.crt"), filepath.Join(s.dir, "ca.crt")); err != nil {
				s.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			p := s.host()
			c := s.caller(p)
			if _, err := c.ask("GET", "/any"); err != nil {
				t.Fatal(err)
			}
			change(s, p)
			if _, err := c.ask("GET", "/any"); api.CodeOf(err) != api.CodePermissionDenied {
				t.Errorf("on the same connection: %v, want permission_denied", err)
			}
			if _, err := c.ask("GET", "/any"); err == nil || api.CodeOf(err) != api.CodeInternal {
				t.Errorf("on a new one: %v, want no connection", err)
			}
		})
	}
}

func TestRequestThatLastsEndsWithTheRightOfItsCaller(t *testing.T) {
	s := newSite(t)
	p := s.host()
	begin := func(ctx context.Context, c *caller) *http.Response {
		r := must(http.NewRequestWithContext(ctx, "GET", "https://"+s.addr+"/forever", http.NoBody))
		return must(c.http.Do(r))
	}
	bad := begin(t.Context(), s.caller(p))
	ctx, stop := context.WithCancel(t.Context())
	good := begin(ctx, s.caller(s.operator(httpjson.Read)))
	s.deny(p)
	if _, err := io.ReadAll(bad.Body); err != nil {
		t.Errorf("the request of who was denied ended with %v", err)
	}
	if who := <-s.ended; who != "alpha" || len(s.ended) != 0 {
		t.Errorf("the request of %s ended, and %d others", who, len(s.ended))
	}
	stop()
	if who := <-s.ended; who != "ann" {
		t.Errorf("the request of %s ended", who)
	}
	if err := errors.Join(bad.Body.Close(), good.Body.Close()); err != nil {
		t.Error(err)
	}
}

func TestRequestThatLastsEndsWithTheAuthorityOfItsCaller(t *testing.T) {
	s := newSite(t)
	answer := must(s.caller(s.host()).http.Do(must(http.NewRequestWithContext(t.Context(), "GET", "https://"+s.addr+"/forever", http.NoBody))))
	// First both authorities: the caller stays valid.
	otherDir := filepath.Join(t.TempDir(), "other")
	must(mtls.CreateCA(otherDir, otherDir))
	own, other := must(os.ReadFile(filepath.Join(s.dir, "ca.crt"))), must(os.ReadFile(filepath.Join(otherDir, "ca.crt")))
	if err := os.WriteFile(filepath.Join(s.dir, "ca.crt"), append(own, other...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.caller(s.host()).ask("GET", "/any"); err != nil || len(s.ended) != 0 {
		t.Errorf("with two authorities: %v, and %d requests ended", err, len(s.ended))
	}
	if err := os.WriteFile(filepath.Join(s.dir, "ca.crt"), other, 0o644); err != nil {
		t.Fatal(err)
	}
	if who := <-s.ended; who != "alpha" {
		t.Errorf("the request of %s ended", who)
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestChangedFilesCountAtOnce(t *testing.T) {
	s := newSite(t)
	serial := func() string {
		c := s.caller(s.host())
		if _, err := c.ask("GET", "/any"); err != nil {
			t.Fatal(err)
		}
		return s.gate.ServerCertificate().SerialNumber.String()
	}
	first := serial()
	s.write(must(s.ca.IssueServer([]string{"localhost"}, mtls.Day)), s.dir, "server")
	if second := serial(); second == first {
		t.Error("the server certificate was not read again")
	}
	if n := s.log.count("read again"); n != 1 {
		t.Errorf("%d lines say that a file was read again", n)
	}

	// A second authority in the same file: both are accepted.
	otherDir := filepath.Join(t.TempDir(), "other")
	other := must(mtls.CreateCA(otherDir, otherDir))
	both := append(must(os.ReadFile(filepath.Join(s.dir, "ca.crt"))), must(os.ReadFile(filepath.Join(otherDir, "ca.crt")))...)
	if err := os.WriteFile(filepath.Join(s.dir, "ca.crt"), both, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, ca := range []*mtls.CA{s.ca, other} {
		p := must(ca.IssueHost(hostID, "alpha", mtls.Day))
		p.CA = both
		if _, err := s.caller(p).ask("GET", "/any"); err != nil {
			t.Error(err)
		}
	}
}

func TestFileThatCannotBeReadLeavesTheLastGoodOneAndIsTold(t *testing.T) {
	for file, content := range map[string]string{
		"denied": "not a hash\n", "ca.crt": "nothing", "server.crt": "nothing", "server.key": "nothing",
	} {
		for _, gone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s gone %t", file, gone), func(t *testing.T) {
				s := newSite(t)
				denied := s.host()
				s.deny(denied)
				if err := s.gate.Trouble(); err != nil {
					t.Error(err)
				}
				path := filepath.Join(s.dir, file)
				good := must(os.ReadFile(path))
				if gone {
					must(0, os.Remove(path))
				} else {
					// Atomically: otherwise an empty file could be read.
					must(0, os.WriteFile(path+".new", []byte(content), 0o600))
					must(0, os.Rename(path+".new", path))
				}
				for range 3 {
					if _, err := s.caller(s.host()).ask("GET", "/any"); err != nil {
						t.Errorf("who is right: %v", err)
					}
					if _, err := s.caller(denied).ask("GET", "/any"); err == nil {
						t.Error("who was denied is let in")
					}
				}
				if err := s.gate.Trouble(); err == nil || !strings.Contains(err.Error(), path) {
					t.Errorf("trouble = %v, want %s in it", err, path)
				}
				if n := s.log.count("cannot be read"); n != 1 {
					t.Errorf("it was logged %d times", n)
				}
				if _, err := mtls.NewGate(s.dir, quiet); err == nil {
					t.Error("a new gate takes it")
				}
				must(0, os.WriteFile(path, good, 0o600))
				if err := s.gate.Trouble(); err != nil {
					t.Errorf("after it was put right: %v", err)
				}
			})
		}
	}
}

func TestServerCertificateThatEndsSoonIsTold(t *testing.T) {
	s := newSite(t)
	s.write(must(s.ca.IssueServer([]string{"localhost"}, 30*mtls.Day)), s.dir, "server")
	if err := s.gate.Trouble(); err != nil {
		t.Errorf("a new certificate: %v", err)
	}
	s.setAhead(27 * mtls.Day)
	if err := s.gate.Trouble(); err == nil || !strings.Contains(err.Error(), "issue-cert server --replace") {
		t.Errorf("three days before the end: %v", err)
	}
}

func TestNoSessionIsResumed(t *testing.T) {
	s := newSite(t)
	c := s.caller(s.host())
	config := c.config()
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 2 {
		c.http = c.with(config)
		r := must(http.NewRequestWithContext(t.Context(), "GET", "https://"+s.addr+"/any", http.NoBody))
		resp := must(c.http.Do(r))
		if err := resp.Body.Close(); err != nil || resp.TLS.DidResume || resp.TLS.Version != tls.VersionTLS13 || resp.ProtoMajor != 1 {
			t.Errorf("resumed %t, TLS %x, HTTP %d, %v", resp.TLS.DidResume, resp.TLS.Version, resp.ProtoMajor, err)
		}
	}
}
