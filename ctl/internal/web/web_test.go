// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/volferry/volferry/internal/client"
)

// otherSide is a daemon that answers all requests alike, and follows its trail for ever.
type otherSide struct {
	*httptest.Server
	target string
	lines  chan string
	ended  chan struct{}

	mu   sync.Mutex
	seen []*http.Request
}

func newOtherSide(t *testing.T) *otherSide {
	t.Helper()
	o := &otherSide{target: filepath.Join(t.TempDir(), "s"), lines: make(chan string), ended: make(chan struct{}, 1)}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", o.target)
	if err != nil {
		t.Fatal(err)
	}
	o.Server = httptest.NewUnstartedServer(o)
	_ = o.Listener.Close()
	o.Listener = l
	o.Start()
	t.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
	})
	return o
}

func (o *otherSide) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.seen = append(o.seen, r)
	o.mu.Unlock()
	w.Header().Set("Set-Cookie", "of=daemon")
	if r.URL.Query().Get("follow") == "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, r.URL.RequestURI())
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case line := <-o.lines:
			fmt.Fprintln(w, line)
		case <-r.Context().Done():
			o.ended <- struct{}{}
			return
		}
	}
}

func (o *otherSide) requests() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*http.Request{}, o.seen...)
}

// site is the page of another side, with a browser.
type site struct {
	*otherSide
	server  *Server
	page    *httptest.Server
	browser *http.Client
}

// newSite serves the page. Its browser has not opened the link yet.
func newSite(t *testing.T) *site {
	t.Helper()
	o := newOtherSide(t)
	c, err := client.New(o.target)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{otherSide: o, server: New(c, About{Target: o.target, Command: "volferryctl"})}
	s.page = httptest.NewServer(s.server.handler())
	t.Cleanup(s.page.Close)
	s.browser = newBrowser(t)
	return s
}

func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

// script sends the key with every request, like the page's scripts.
type script struct{ key string }

func (s script) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set(keyHeader, s.key)
	return http.DefaultTransport.RoundTrip(r)
}

// keyIn matches the key in the page that the link opens.
var keyIn = regexp.MustCompile(`<meta name="key" content="([A-Z2-7]+)">`)

// openSite serves the page to a browser that has opened the link.
func openSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.open(t, s.link())
	return s
}

// open opens the link; from then on the browser sends the key.
func (s *site) open(t *testing.T, link string) {
	t.Helper()
	status, body := get(t, s.browser, link)
	key := keyIn.FindStringSubmatch(body)
	if status != http.StatusOK || key == nil {
		t.Fatalf("the link answers %d %s", status, body)
	}
	s.browser.Transport = script{key[1]}
}

func (s *site) link() string { return s.server.URL(s.page.Listener.Addr()) }

// ask sends a request with the headers, "Name: value", and returns the answer with its body closed.
func (s *site) ask(t *testing.T, method, path string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.page.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := s.browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}

func get(t *testing.T, browser *http.Client, url string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestServingEndsWithTheContextAlsoUnderAStream(t *testing.T) {
	s := newSite(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(ctx, l) }()
	s.open(t, s.server.URL(l.Addr()))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/v1/events?follow=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err == nil {
		t.Error("the stream goes on")
	}
	<-s.ended
}

func TestLinkNamesTheAddressThatIsListenedAt(t *testing.T) {
	s := newSite(t)
	u, err := url.Parse(s.server.URL(&net.TCPAddr{IP: net.IPv6loopback, Port: 7}))
	if err != nil {
		t.Fatal(err)
	}
	if u.Host != "[::1]:7" || len(u.Query().Get("token")) < 26 {
		t.Errorf("URL = %s", u)
	}
}

// Data stored in the browser by another program's page for a predictable port would affect this
// page.
func TestThePageHasAPortThatNobodyKnowsBeforehand(t *testing.T) {
	ports := map[int]bool{}
	for range 3 {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", DefaultAddress)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()                            //nolint:errcheck // no client connects
		ports[l.Addr().(*net.TCPAddr).Port] = true //nolint:errcheck // it is one
	}
	if len(ports) != 3 {
		t.Errorf("three pages are at the ports %v", ports)
	}
}

func TestOnlyThisMachinesOwnAddressesAreListenedAt(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:9645": "127.0.0.1:9645", "127.0.0.1:0": "127.0.0.1:0", "localhost:80": "127.0.0.1:80",
		"[::1]:9645": "[::1]:9645", "[0:0:0:0:0:0:0:1]:9645": "[::1]:9645",
		"0.0.0.0:9645": "", ":9645": "", "[::]:9645": "", "127.0.0.2:9645": "", "192.0.2.1:9645": "", "[fe80::1%lo]:1": "",
		"[::1%lo]:1": "", "[::ffff:127.0.0.1]:1": "", "hv1:9645": "", "127.0.0.1": "", "127.0.0.1:http": "", "127.0.0.1:65536": "", "127.0.0.1:": "", "": "",
	} {
		got, err := CheckAddress(address)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("CheckAddress(%q) = %q, %v; want %q", address, got, err, want)
		}
	}
}
