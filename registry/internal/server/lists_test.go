// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/registry/internal/server"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// mostOfAPage is what a page may have: 1 MiB, and the volume after that.
const mostOfAPage = 1<<20 + 70<<10

// addClones registers linked clones with as many base images as a location may have.
func (s *site) addClones(t *testing.T, name string, first, count int) {
	t.Helper()
	if first == 100 {
		s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", reportOfA)
	}
	for i := range count {
		at := storetest.At(fmt.Sprintf("/fast/%s-%d", name, i))
		at.Format = api.FormatQcow2
		bases := make([]api.BaseImage, 16)
		for n := range bases {
			bases[n] = api.BaseImage{Path: fmt.Sprintf("/fast/%s-%d-%d-%s", name, i, n, strings.Repeat("x", 3900)), Format: api.FormatQcow2}
		}
		at.Backing = api.NewBacking(bases)
		in := api.VolumeRegister{ID: clone(first + i), Name: at.Name, Status: api.VolumeAvailable, Host: "a", Location: at}
		expect.Value(s.store.Volumes.Register(t.Context(), store.Call{}, in))(t)
	}
}

func clone(n int) string { return storetest.ID(storetest.VolumeKind, n) }

// serve returns a client of the site, and the length of its longest answer.
func (s *site) serve(t *testing.T) (r *client.Registry, longest func() int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l := expect.Value((&net.ListenConfig{}).Listen(t.Context(), "unix", path))(t)
	most := 0
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			counted := &counting{ResponseWriter: w}
			s.handler.ServeHTTP(counted, r)
			most = max(most, counted.bytes)
		}),
		ConnContext:       func(ctx context.Context, _ net.Conn) context.Context { return httpjson.WithPeer(ctx, httpjson.Peer{}) },
		ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	r = expect.Value(client.NewRegistry(path))(t)
	t.Cleanup(r.Close)
	return r, func() int { return most }
}

type counting struct {
	http.ResponseWriter
	bytes int
}

func (c *counting) Write(p []byte) (int, error) {
	c.bytes += len(p)
	return c.ResponseWriter.Write(p)
}

// The list of all of them is 100 MB, of those of the short test 20 MB.
func TestTheLargestVolumesThatAHostCanRegisterTakeOneMebibyteAtATime(t *testing.T) {
	s := newSite(t)
	count := 1600
	if testing.Short() {
		count = 320
		t.Cleanup(server.BoundWhole(16 << 20))
	}
	s.addClones(t, "clone", 100, count)
	r, longest := s.serve(t)

	heap := func() uint64 {
		var now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&now)
		return now.HeapAlloc
	}
	before, most, seen := heap(), uint64(0), 0
	expect.OK(t, r.EachVolume(t.Context(), func(v *api.Volume) error {
		if seen++; seen%100 == 0 {
			most = max(most, heap())
		}
		if len(v.Location.Backing.Images()) != 16 {
			t.Errorf("volume %s lacks base images", v.Name)
		}
		return nil
	}))
	if seen != count {
		t.Errorf("%d volumes of %d", seen, count)
	}
	if longest() > mostOfAPage {
		t.Errorf("an answer has %d bytes", longest())
	}
	if grown := int64(most) - int64(before); grown > 32<<20 { // client and registry
		t.Errorf("it took %d MiB of memory", grown>>20)
	}
	w := s.do(t, "GET", "/v1/volumes", "")
	wantError(t, w, api.CodeInvalidArgument)
	if !strings.Contains(w.Body.String(), "query parameter after") {
		t.Errorf("a caller that knows no pages is told %s", w.Body)
	}
}

func TestAVolumeThatIsThereAllTheTimeIsInOnePageWhateverChangesMeanwhile(t *testing.T) {
	s := newSite(t)
	s.addClones(t, "stays", 100, 60)
	s.addClones(t, "goes", 200, 60)
	found, pages := map[string]int{}, 0
	expect.OK(t, client.FollowPages(func(after string) (string, error) {
		w := s.do(t, "GET", "/v1/volumes?after="+after, "")
		var page struct {
			Volumes []api.Volume `json:"volumes"`
			Next    string       `json:"next"`
		}
		expect.OK(t, json.Unmarshal(w.Body.Bytes(), &page))
		if w.Code != http.StatusOK || w.Body.Len() > mostOfAPage || len(page.Volumes) == 0 {
			t.Fatalf("answer = %d with %d bytes and %d volumes", w.Code, w.Body.Len(), len(page.Volumes))
		}
		for _, v := range page.Volumes {
			found[v.ID]++
		}
		for i := range 6 { // what was seen and what was not
			s.ok(t, "PATCH", "/v1/volumes/"+clone(100+i*10+pages), fmt.Sprintf(`{"name":"renamed-%d"}`, 1000-i*10-pages))
			s.ok(t, "POST", "/v1/volumes/"+clone(200+i*10+pages)+"/forget", "{}")
		}
		s.addClones(t, fmt.Sprintf("new-%d", pages), 1000*pages+40, 3)
		pages++
		return page.Next, nil
	}))
	if pages < 5 {
		t.Errorf("%d pages: this test shows nothing", pages)
	}
	for i := range 60 {
		if found[clone(100+i)] != 1 {
			t.Errorf("volume stays-%d was found %d times", i, found[clone(100+i)])
		}
	}
}

func TestACallerThatKnowsNoPagesGetsTheWholeListInItsOrder(t *testing.T) {
	s := newSite(t)
	s.addClones(t, "clone", 100, 40) // 2.5 MB
	var volumes []api.Volume
	expect.OK(t, json.Unmarshal(s.ok(t, "GET", "/v1/volumes", ""), &volumes))
	if len(volumes) != 40 {
		t.Fatalf("%d volumes", len(volumes))
	}
	for i := range volumes[1:] {
		if volumes[i].Name >= volumes[i+1].Name {
			t.Errorf("%s comes before %s", volumes[i].Name, volumes[i+1].Name)
		}
	}
}

// A daemon passes a request on with the features of the program that asked.
func TestACallerThatAnnouncesPagesGetsThem(t *testing.T) {
	s := newSite(t)
	s.addClones(t, "clone", 100, 40) // 2.5 MB
	daemon := speaker{cert: certificate(hostID, "a"), epoch: "1"}
	for _, caller := range []string{"", "uid=0"} {
		r := daemon.request(t.Context(), "GET", "/v1/volumes", "")
		protocol.Announce(r.Header)
		if caller != "" {
			r.Header.Set(api.CallerHeader, caller)
		}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		var answer map[string]json.RawMessage
		expect.OK(t, json.Unmarshal(w.Body.Bytes(), &answer))
		if answer["volumes"] == nil || answer["next"] == nil {
			t.Errorf("caller %q: answer = %d %.200s, want a page with a next one", caller, w.Code, w.Body)
		}
	}
}

// Each list has one thing of each kind at least, and the routes take the parameter.
func TestEveryListHasPages(t *testing.T) {
	s := newSite(t)
	s.fill(t)
	for _, path := range []string{"hosts", "pools", "drains", "types", "policies", "volumes", "attachments", "instances", "migrations"} {
		var whole, rest map[string]json.RawMessage
		expect.OK(t, json.Unmarshal(s.do(t, "GET", "/v1/"+path+"?after=", "").Body.Bytes(), &whole))
		var things []map[string]any
		expect.OK(t, json.Unmarshal(whole[path], &things))
		if len(things) == 0 || whole["next"] != nil {
			t.Errorf("%s: %d things, and next %s", path, len(things), whole["next"])
		}
		after := "zzz"
		switch path {
		case "attachments":
			after = "//zzz/zzz"
		case "migrations":
			after = "//zzz"
		}
		expect.OK(t, json.Unmarshal(s.do(t, "GET", "/v1/"+path+"?after="+after, "").Body.Bytes(), &rest))
		if string(rest[path]) != "[]" {
			t.Errorf("%s after the last: %s", path, rest[path])
		}
	}
	wantError(t, s.do(t, "GET", "/v1/attachments?after=x", ""), api.CodeInvalidArgument)
}

func TestAListOfAVolumeEndsWhereItsNameIsAnothersMeanwhile(t *testing.T) {
	s := newSite(t)
	s.fill(t)
	next := freeID + "//" + volumeID + "/" + instanceID
	wantError(t, s.do(t, "GET", "/v1/attachments?volume=data&after="+next, ""), api.CodeConflict)
	if w := s.do(t, "GET", "/v1/attachments?volume=free&after="+next, ""); w.Code != http.StatusOK {
		t.Errorf("the same volume = %d %s", w.Code, w.Body)
	}
}
