// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

// openPath is the path where the token is exchanged for the session.
const openPath = "/open"

// contentSecurityPolicy limits the page to resources of this server: texts come from hosts and
// guests.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guarded passes on only requests that a browser makes for this page.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentSecurityPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !isLoopbackName(r.Host):
			http.Error(w, "This page is on 127.0.0.1, ::1 and localhost only.", http.StatusForbidden)
		case r.Method != http.MethodGet:
			h.Set("Allow", http.MethodGet)
			http.Error(w, "This page only reads.", http.StatusMethodNotAllowed)
		case !isOwnOrigin(r):
			http.Error(w, "This page answers no other page.", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLoopbackName reports whether a Host header names this machine by a name that DNS rebinding
// cannot produce. Port forwarding may change the port.
func isLoopbackName(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return host == "127.0.0.1" || host == "::1" || host == "localhost"
}

// isOwnOrigin reports whether the request comes from this page, or from no page. The token's link
// may be on any page, such as a terminal in a browser.
func isOwnOrigin(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return false
	}
	if r.URL.Path == openPath {
		return true
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "" || site == "same-origin" || site == "none"
}

// admission admits one browser: the first that presents the token gets the session.
type admission struct {
	// cookie is the name of the session's cookie, different in each run: browsers share cookies
	// between ports.
	cookie, session string
	// key is sent by the page's scripts in keyHeader. Every server of this machine gets the
	// cookie, but only pages of this port have the key.
	key string

	mu    sync.Mutex
	token string // "" once it was used
}

func newAdmission() *admission {
	return &admission{cookie: "volferry-" + rand.Text()[:8], session: rand.Text(), key: rand.Text(), token: rand.Text()}
}

// exchange consumes the token. It returns false if token is wrong or was used.
func (a *admission) exchange(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == "" || !equal(a.token, token) {
		return false
	}
	a.token = ""
	return true
}

const keyHeader = "Volferry-Page-Key"

// open gives the session to the browser with the token. It answers with a page that stores the key
// and loads the main page. After a redirect, a browser from another site's link would not send a
// cookie with SameSite=Strict.
func (a *admission) open(w http.ResponseWriter, r *http.Request) {
	if !a.exchange(r.URL.Query().Get("token")) {
		http.Error(w, "This link is not valid, or was used already: it works once.\n"+
			"In the browser that used it the page is at http://"+r.Host+"/\nFor another link end 'volferryctl web', and start it again.", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: a.cookie, Value: a.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><meta name="key" content="%s"><script type="module" src="/enter.js"></script><title>Volferry</title><a href="/">Open the page</a></html>`+"\n", a.key)
}

func (a *admission) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie(a.cookie); err != nil || !equal(c.Value, a.session) {
			http.Error(w, "This browser has no session here: open the link that 'volferryctl web' printed.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *admission) withKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !equal(r.Header.Get(keyHeader), a.key) {
			http.Error(w, "This page has no key: open the link that 'volferryctl web' printed.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
