// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
)

func TestLinkWorksOnceAndForTheBrowserThatOpenedItFirst(t *testing.T) {
	s := newSite(t)
	if status, body := get(t, s.browser, s.link()); status != http.StatusOK || !strings.Contains(body, `src="/enter.js"`) {
		t.Fatalf("the link answers %d %s", status, body)
	}
	if status, body := get(t, s.browser, s.page.URL); status != http.StatusOK || !strings.Contains(body, "<h1>Volferry</h1>") {
		t.Errorf("the page is %d %s", status, body)
	}
	other := newBrowser(t)
	for _, url := range []string{s.link(), s.page.URL + openPath, s.page.URL + openPath + "?token="} {
		if status, _ := get(t, other, url); status != http.StatusForbidden {
			t.Errorf("%s answers another browser with %d", url, status)
		}
	}
	if status, _ := get(t, other, s.page.URL); status != http.StatusUnauthorized {
		t.Errorf("the page answers another browser with %d", status)
	}
	if status, _ := get(t, s.browser, s.link()); status != http.StatusForbidden {
		t.Errorf("the link answers a second time with %d", status)
	}
	if status, _ := get(t, s.browser, s.page.URL); status != http.StatusOK {
		t.Errorf("the page answers with %d after the link was used again", status)
	}
}

func TestWrongTokenDoesNotUseTheRightOneUp(t *testing.T) {
	s := newSite(t)
	if resp := s.ask(t, "GET", openPath+"?token=guess"); resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) > 0 {
		t.Errorf("a guess is answered with %s and cookies %v", resp.Status, resp.Cookies())
	}
	if status, _ := get(t, s.browser, s.link()); status != http.StatusOK {
		t.Errorf("the link answers %d after a guess", status)
	}
}

func TestOfManyWhoShowTheTokenAtOnceOneIsLetIn(t *testing.T) {
	a := newAdmission()
	token := a.token
	var (
		wg sync.WaitGroup
		mu sync.Mutex
		in int
	)
	for range 20 {
		wg.Go(func() {
			if a.exchange(token) {
				mu.Lock()
				defer mu.Unlock()
				in++
			}
		})
	}
	wg.Wait()
	if in != 1 {
		t.Errorf("%d were let in", in)
	}
}

func TestCookieStaysInThisBrowserAndIsNotForScripts(t *testing.T) {
	s := newSite(t)
	resp := s.ask(t, "GET", openPath+"?token="+s.server.admission.token)
	if len(resp.Cookies()) != 1 {
		t.Fatalf("cookies: %v", resp.Cookies())
	}
	c := resp.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 0 || !c.Expires.IsZero() {
		t.Errorf("Set-Cookie: %s", c.Raw)
	}
	if another := newAdmission(); another.cookie == c.Name || another.session == c.Value {
		t.Error("two runs have the same cookie")
	}
}

func TestWithoutTheSessionNothingIsAnswered(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/", "/main.js", "/style.css", "/icon.svg", "/about", "/v1/status", "/v1/events?follow=1", "/v1/migrations/m1", "/nothing"} {
		for _, cookie := range []string{"", s.server.admission.cookie + "=", s.server.admission.cookie + "=guess", "volferry=" + s.server.admission.session} {
			if resp := s.ask(t, "GET", path, "Cookie: "+cookie); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with cookie %q is answered with %s", path, cookie, resp.Status)
			}
		}
	}
	if n := len(s.requests()); n > 0 {
		t.Errorf("%d requests reached the other side", n)
	}
}

// A browser sends its cookies to all ports: a server at another port gets the session and could use
// it.
func TestWhoHasTheCookieAloneReadsNothing(t *testing.T) {
	s := openSite(t)
	stolen := newBrowser(t)
	stolen.Jar = s.browser.Jar
	if len(stolen.Jar.Cookies(&url.URL{Scheme: "http", Host: "127.0.0.1:1"})) != 1 {
		t.Fatal("another port does not get the cookie, which proves nothing")
	}
	for _, path := range []string{"/about", "/v1/status", "/v1/events?follow=1", "/v1/migrations/m1"} {
		for _, key := range []string{"", "guess", s.server.admission.session} {
			stolen.Transport = script{key}
			if status, body := get(t, stolen, s.page.URL+path); status != http.StatusUnauthorized {
				t.Errorf("%s with key %q is answered %d %s", path, key, status, body)
			}
		}
	}
	if n := len(s.requests()); n > 0 {
		t.Errorf("%d requests reached the other side", n)
	}
	// Only the page that consumes the token has the key.
	eachPageFile(t, func(name, _ string) {
		stolen.Transport = nil
		if _, body := get(t, stolen, s.page.URL+"/"+strings.TrimSuffix(name, "index.html")); strings.Contains(body, s.server.admission.key) {
			t.Errorf("%s has the key", name)
		}
	})
}

func TestOtherNamesOfThisMachineAreRefused(t *testing.T) {
	s := openSite(t)
	for host, want := range map[string]int{
		"localhost:1": 200, "127.0.0.1:1": 200, "127.0.0.1": 200, "[::1]:1": 200, "[::1]": 200, "localhost": 200,
		"evil.example": 403, "evil.example:9645": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example:1": 403, "localhost.": 403, "127.0.0.2": 403, "0.0.0.0:1": 403, "[::]:1": 403,
	} {
		for _, path := range []string{"/", openPath + "?token=" + s.server.admission.token} {
			resp := s.ask(t, "GET", path, "Host: "+host, "Cookie: "+s.server.admission.cookie+"="+s.server.admission.session)
			if path == "/" && resp.StatusCode != want || resp.StatusCode == http.StatusOK && want != 200 {
				t.Errorf("%s of host %s is answered with %s, want %d", path, host, resp.Status, want)
			}
		}
	}
}

func TestOtherPagesAreRefused(t *testing.T) {
	s := openSite(t)
	own := s.page.URL
	for header, want := range map[string]int{
		"Origin: " + own: 418, "Sec-Fetch-Site: same-origin": 418, "Sec-Fetch-Site: none": 418,
		"Origin: http://evil.example": 403, "Origin: null": 403, "Origin: http://127.0.0.1:1": 403, "Origin: " + strings.Replace(own, "http", "https", 1): 403,
		"Sec-Fetch-Site: cross-site": 403, "Sec-Fetch-Site: same-site": 403,
	} {
		if resp := s.ask(t, "GET", "/v1/status", header); resp.StatusCode != want {
			t.Errorf("a request with %s is answered with %s, want %d", header, resp.Status, want)
		}
	}
}

// A terminal may be a web page, too.
func TestLinkMayStandOnAnotherPage(t *testing.T) {
	s := newSite(t)
	if resp := s.ask(t, "GET", openPath+"?token="+s.server.admission.token, "Sec-Fetch-Site: cross-site"); resp.StatusCode != http.StatusOK {
		t.Errorf("the link is answered with %s", resp.Status)
	}
}

func TestEveryAnswerHasThePolicyOfThePage(t *testing.T) {
	s := newSite(t)
	check := func(path string, headers ...string) {
		t.Helper()
		h := s.ask(t, "GET", path, headers...).Header
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "http") {
			t.Errorf("%s has the policy %s", path, policy)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
			if got := h.Get(name); got != want {
				t.Errorf("%s has %s: %s", path, name, got)
			}
		}
	}
	check("/")
	check("/", "Host: evil.example")
	check(openPath)
	check(openPath + "?token=" + s.server.admission.token)
	for _, path := range []string{"/", "/main.js", "/style.css", "/about", "/v1/status"} {
		check(path)
	}
}
