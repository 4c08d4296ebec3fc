// SPDX-License-Identifier: Apache-2.0

package httpjson_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
)

type thing struct {
	Name      string `json:"name"`
	SizeBytes int64  `json:"size_bytes"`
}

func everyone(*http.Request, httpjson.Route) error { return nil }

func newHandler(authorize httpjson.Authorizer, routes ...httpjson.Route) http.Handler {
	return httpjson.NewHandler(httpjson.Config{Routes: routes, Authorize: authorize, Log: slog.New(slog.DiscardHandler)})
}

func call(t *testing.T, h http.Handler, method, path, body string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w.Code, w.Body.String(), w.Header()
}

func wantError(t *testing.T, status int, body string, wantStatus int, wantCode api.Code, wantText string) {
	t.Helper()
	e := expect.Refusal([]byte(body))
	if e == nil {
		t.Fatalf("answer %d %q is no ErrorBody", status, body)
	}
	if status != wantStatus || e.Code != wantCode || !strings.Contains(e.Message, wantText) {
		t.Errorf("answer = %d %s %q, want %d %s with %q", status, e.Code, e.Message, wantStatus, wantCode, wantText)
	}
}

func TestDocumentsSayTheirVersionFirst(t *testing.T) {
	h := newHandler(everyone, httpjson.Route{Method: "GET", Path: "/v1/thing", Handler: func(w http.ResponseWriter, _ *http.Request) error {
		return httpjson.Write(w, http.StatusOK, "thing", thing{Name: "a", SizeBytes: 512})
	}})
	status, body, header := call(t, h, "GET", "/v1/thing", "")
	if diff := cmp.Diff(`{"schema_version":1,"thing":{"name":"a","size_bytes":512}}`+"\n", body); diff != "" || status != 200 {
		t.Errorf("status %d, (-want +got):\n%s", status, diff)
	}
	if got := header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type = %q", got)
	}
}

func TestBodiesThatAreRefused(t *testing.T) {
	h := newHandler(everyone, httpjson.Route{Method: "POST", Path: "/v1/things", Handler: func(w http.ResponseWriter, r *http.Request) error {
		var v thing
		if err := httpjson.Decode(r, &v); err != nil {
			return err
		}
		return httpjson.Write(w, http.StatusCreated, "thing", v)
	}})
	for name, tc := range map[string]struct{ body, want string }{
		"empty":         {"", "empty"},
		"cut":           {`{"name":"a"`, "ends in the middle"},
		"no JSON":       {`{name}`, "not JSON"},
		"unknown field": {`{"name":"a","colour":"red"}`, `unknown field "colour"`},
		"wrong type":    {`{"size_bytes":"1GiB"}`, `"size_bytes" of the request body cannot be a JSON string`},
		"fraction":      {`{"size_bytes":1.5}`, `"size_bytes"`},
		"overflow":      {`{"size_bytes":9223372036854775808}`, `"size_bytes"`},
		"no object":     {`[1]`, "cannot be a JSON array"},
		"trailing":      {`{"name":"a"}{"name":"b"}`, "after its JSON document"},
		"2 MiB":         {`{"name":"` + strings.Repeat("x", 2<<20) + `"}`, "larger than"},
		"2 MiB blanks":  {`{"name":"a"}` + strings.Repeat(" ", 2<<20), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body, _ := call(t, h, "POST", "/v1/things", tc.body)
			wantError(t, status, body, 400, api.CodeInvalidArgument, tc.want)
		})
	}
	if status, body, _ := call(t, h, "POST", "/v1/things", ` {"name":"a","size_bytes":1} `+"\n"); status != 201 {
		t.Errorf("a good body was answered with %d %s", status, body)
	}
}

// encoding/json ignores these: a missing or null member would become its zero value, and of two
// equal members the last would count.
func TestMembersAreTheirTypesExactlyAndOnce(t *testing.T) {
	type inner struct {
		Path string `json:"path"`
	}
	type Placement struct {
		Rank int64 `json:"rank,omitempty"`
		Near inner `json:"near,omitempty"`
	}
	type outer struct {
		Placement
		On     bool           `json:"on"`
		Why    *string        `json:"why"`
		Place  inner          `json:"place,omitempty"`
		Places []inner        `json:"places,omitempty"`
		Lists  []string       `json:"lists,omitempty" schema:"nullable"`
		Free   map[string]any `json:"free,omitempty"`
		Later  string         `json:"later" schema:"optional"`
	}
	h := newHandler(everyone, httpjson.Route{Method: "POST", Path: "/v1/things", Handler: func(w http.ResponseWriter, r *http.Request) error {
		var v outer
		if err := httpjson.Decode(r, &v); err != nil {
			return err
		}
		return httpjson.Write(w, http.StatusCreated, "thing", v.On)
	}})
	for body, want := range map[string]string{
		`null`:                                   "cannot be a JSON null",
		`{}`:                                     `lacks the field "on"`,
		``:                                       "is empty",
		`{"on":null}`:                            `"on" of the request body cannot be a JSON null`,
		`{"on":true,"ON":false}`:                 `unknown field "ON"`,
		`{"ON":true}`:                            `unknown field "ON"`,
		`{"on":true,"on":false}`:                 `"on" twice`,
		`{"on":true,"place":{}}`:                 `lacks the field "place.path"`,
		`{"on":true,"place":null}`:               `"place"`,
		`{"on":true,"rank":"x"}`:                 `the field "rank" of`,
		`{"on":true,"near":{"path":1}}`:          `the field "near.path" of`,
		`{"on":true,"near":{}}`:                  `lacks the field "near.path"`,
		`{"on":true,"placement":{}}`:             `unknown field "placement"`,
		`{"on":true,"places":[{"PATH":"x"}]}`:    `unknown field "places.PATH"`,
		`{"on":true,"places":[null]}`:            `"places"`,
		`{"on":true,"free":{"a":{"b":1,"b":2}}}`: `"free.a.b" twice`,
		`{"on":true,"why":null,"lists":null}`:    "",
		`{"on":true,"free":{"A":1,"a":null}}`:    "",
		`{"later":"x","on":false}`:               "",
		`{"on":true,"rank":1}`:                   "",
	} {
		status, answer, _ := call(t, h, "POST", "/v1/things", body)
		if want == "" && status != 201 || want != "" && (status != 400 || !strings.Contains(strings.ReplaceAll(answer, `\"`, `"`), want)) {
			t.Errorf("%s: %d %s, want %q", body, status, answer, want)
		}
	}
}

// A body may be absent if no member is required.
func TestABodyInWhichNothingIsRequiredMayBeLeftOut(t *testing.T) {
	type options struct {
		Force bool `json:"force,omitempty"`
	}
	route := httpjson.Route{Method: "POST", Path: "/v1/things/stop", In: options{}, Handler: func(w http.ResponseWriter, r *http.Request) error {
		var v options
		if err := httpjson.Decode(r, &v); err != nil {
			return err
		}
		return httpjson.Write(w, http.StatusOK, "thing", v.Force)
	}}
	if status, body, _ := call(t, newHandler(everyone, route), "POST", "/v1/things/stop", ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	body := at(t, openAPI(t, route), "paths", "/v1/things/stop", "post", "requestBody")
	if body["required"] != false {
		t.Errorf("the body is required by %v", body)
	}
}

// A message repeats only a part of a long request.
func TestARefusalDoesNotRepeatAllOfALongRequest(t *testing.T) {
	type note struct {
		At time.Time `json:"at"`
	}
	h := newHandler(everyone, httpjson.Route{Method: "POST", Path: "/v1/notes", Handler: func(_ http.ResponseWriter, r *http.Request) error {
		var v note
		return httpjson.Decode(r, &v)
	}})
	long := strings.Repeat("x", 10_000)
	for _, body := range []string{`{"at":"` + long + `"}`, `{"` + long + `":1}`, `{"at":"2026-01-01T00:00:00Z","` + strings.Repeat("X", 10_000) + `":1}`} {
		if status, answer, _ := call(t, h, "POST", "/v1/notes", body); status != 400 || len(answer) > 600 {
			t.Errorf("%d, %d bytes", status, len(answer))
		}
	}
}

func TestAPathThatIsNotCleanIsAnsweredInJSON(t *testing.T) {
	h := newHandler(everyone, httpjson.Route{Method: "GET", Path: "/v1/volumes", Handler: func(http.ResponseWriter, *http.Request) error { return nil }})
	for _, path := range []string{"/v1//volumes", "//v1/volumes", "/v1/./volumes", "/v1/x/../volumes"} {
		status, body, _ := call(t, h, "GET", path, "")
		wantError(t, status, body, 404, api.CodeNotFound, "no empty part")
	}
}

func TestUnknownPathAndWrongMethodAreJSON(t *testing.T) {
	ok := func(w http.ResponseWriter, _ *http.Request) error { return httpjson.Write(w, 200, "ok", true) }
	h := newHandler(everyone,
		httpjson.Route{Method: "GET", Path: "/v1/things/{t}", Handler: ok},
		httpjson.Route{Method: "DELETE", Path: "/v1/things/{t}", Handler: ok})
	status, body, _ := call(t, h, "GET", "/v1/nothing", "")
	wantError(t, status, body, 404, api.CodeNotFound, "/v1/nothing")
	status, body, header := call(t, h, "POST", "/v1/things/a", "")
	wantError(t, status, body, 405, api.CodeInvalidArgument, "GET, DELETE")
	if got := header.Get("Allow"); got != "GET, DELETE" {
		t.Errorf("Allow = %q", got)
	}
}

func TestHandlerErrorsAndPanicsBecomeAnswers(t *testing.T) {
	h := newHandler(everyone,
		httpjson.Route{Method: "GET", Path: "/known", Handler: func(http.ResponseWriter, *http.Request) error {
			return api.Errorf(api.CodeMultiattached, "two").With("count", 2)
		}},
		httpjson.Route{Method: "GET", Path: "/unknown", Handler: func(http.ResponseWriter, *http.Request) error { return errors.New("disk on fire") }},
		httpjson.Route{Method: "GET", Path: "/details", Handler: func(http.ResponseWriter, *http.Request) error {
			return api.Errorf(api.CodeConflict, "kept").With("bad", make(chan int))
		}},
		httpjson.Route{Method: "GET", Path: "/panic", Handler: func(http.ResponseWriter, *http.Request) error { panic("oops") }})
	status, body, _ := call(t, h, "GET", "/known", "")
	wantError(t, status, body, 409, api.CodeMultiattached, "two")
	status, body, _ = call(t, h, "GET", "/unknown", "")
	wantError(t, status, body, 500, api.CodeInternal, "disk on fire")
	status, body, _ = call(t, h, "GET", "/details", "")
	wantError(t, status, body, 409, api.CodeConflict, "kept")
	status, body, _ = call(t, h, "GET", "/panic", "")
	wantError(t, status, body, 500, api.CodeInternal, "bug of Volferry")
}

func TestQueryParametersThatAreRefusedDoNotReachTheHandler(t *testing.T) {
	var refused []error
	reached := false
	h := httpjson.NewHandler(httpjson.Config{
		Routes: []httpjson.Route{{
			Method: "GET", Path: "/v1/things", Query: []string{"all"},
			Handler: func(w http.ResponseWriter, r *http.Request) error {
				reached = true
				return httpjson.Write(w, http.StatusOK, "all", r.URL.Query().Get("all"))
			},
		}},
		Authorize: func(*http.Request, httpjson.Route) error { return nil },
		Refused:   func(_ *http.Request, err error) { refused = append(refused, err) },
	})
	for query, want := range map[string]string{"colour=red": "colour", "all=1&all=2": "2 times", "%zz": "cannot be read"} {
		refused = nil
		status, body, _ := call(t, h, "GET", "/v1/things?"+query, "")
		wantError(t, status, body, 400, api.CodeInvalidArgument, want)
		if reached || len(refused) != 1 {
			t.Errorf("query %q: the handler is called: %t; told of the refusals %v", query, reached, refused)
		}
	}
	if status, body, _ := call(t, h, "GET", "/v1/things?all=1", ""); status != 200 || !reached {
		t.Errorf("a parameter of the route: %d %s", status, body)
	}
}

func TestIdempotencyKeysThatAreRefused(t *testing.T) {
	for key, ok := range map[string]bool{"": true, "op-1": true, strings.Repeat("k", 96): true, strings.Repeat("k", 97): false, "a b": false, "é": false} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		r.Header.Set(api.IdempotencyKeyHeader, key)
		got, err := httpjson.IdempotencyKey(r)
		if ok && (err != nil || got != key) || !ok && api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("key %q = %q, %v", key, got, err)
		}
	}
}

// serveUnix serves h on a Unix socket and returns a client.
func serveUnix(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ConnContext: httpjson.ConnContext, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := errors.Join(srv.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://unix"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestPeerOfAUnixSocketIsTheCaller(t *testing.T) {
	var got httpjson.Peer
	c := serveUnix(t, newHandler(httpjson.SocketAuthorizer(-1), httpjson.Route{
		Method: "GET", Path: "/", Access: httpjson.Operate,
		Handler: func(w http.ResponseWriter, r *http.Request) error {
			got, _ = httpjson.PeerOf(r.Context())
			return httpjson.Write(w, 200, "ok", true)
		},
	}))
	resp := get(t, c, "/")
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || int(got.UID) != os.Getuid() || int(got.GID) != os.Getgid() || int(got.PID) != os.Getpid() || len(got.Groups) != len(groups) {
		t.Errorf("status %d, peer %+v with %d groups, want this process with %d", resp.StatusCode, got, len(got.Groups), len(groups))
	}
}

func TestWhoMayOperateOnASocket(t *testing.T) {
	const group = 4242
	authorize := httpjson.SocketAuthorizer(group)
	stranger := uint32(os.Getuid()) + 1000
	for name, tc := range map[string]struct {
		peer          httpjson.Peer
		read, operate bool
	}{
		"root":                   {httpjson.Peer{UID: 0}, true, true},
		"self":                   {httpjson.Peer{UID: uint32(os.Getuid())}, true, true},
		"primary group":          {httpjson.Peer{UID: stranger, GID: group}, true, true},
		"supplementary group":    {httpjson.Peer{UID: stranger, Groups: []uint32{1, group}}, true, true},
		"stranger":               {httpjson.Peer{UID: stranger, GID: 1}, true, false},
		"another user namespace": {httpjson.Peer{UID: 65534, GID: group}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(httpjson.WithPeer(t.Context(), tc.peer), "GET", "/", nil)
			for access, want := range map[httpjson.Access]bool{httpjson.Read: tc.read, httpjson.Operate: tc.operate, httpjson.Fence: tc.operate} {
				err := authorize(r, httpjson.Route{Access: access})
				if (err == nil) != want || err != nil && api.CodeOf(err) != api.CodePermissionDenied {
					t.Errorf("%s: error = %v, want allowed = %t", access, err, want)
				}
			}
		})
	}
	if err := authorize(httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), httpjson.Route{Access: httpjson.Read}); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("a caller without a socket: error = %v, want permission_denied", err)
	}
}

func TestStreamSendsEachLineAtOnce(t *testing.T) {
	next := make(chan struct{})
	c := serveUnix(t, newHandler(everyone, httpjson.Route{Method: "GET", Path: "/", Handler: func(w http.ResponseWriter, _ *http.Request) error {
		s, err := httpjson.NewStream(w)
		if err != nil {
			return err
		}
		for i := range 3 {
			<-next
			if err := s.Send(thing{SizeBytes: int64(i)}); err != nil {
				return err
			}
		}
		return nil
	}}))
	resp := get(t, c, "/")
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		next <- struct{}{}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var v thing
		if err := json.Unmarshal(line, &v); err != nil || v.SizeBytes != int64(i) {
			t.Errorf("line %d = %s (%v)", i, line, err)
		}
	}
	if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last line: %v, want EOF", err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
}
