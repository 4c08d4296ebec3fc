// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/server"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
	"github.com/volferry/volferry/registry/internal/workflow"
)

func TestMain(m *testing.M) { relaytest.Main(m) }

// site is a registry with a host, as its HTTP handler. Callers are root unless the test says
// otherwise.
type site struct {
	server  *server.Server
	handler http.Handler
	metrics *server.Metrics
	store   *workflow.Store
	relay   *relay.Relay
	path    string
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := newSiteAt(t, filepath.Join(t.TempDir(), "registry.db"))
	s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", report)
	return s
}

// newSiteAt returns a registry over the database at path, which may exist.
func newSiteAt(t testing.TB, path string) *site {
	t.Helper()
	s := expect.Value(openSite(path))(t)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openSite(path string) (*site, error) {
	log := slog.New(slog.DiscardHandler)
	m := server.NewMetrics("1.2.3")
	db, err := workflow.Open(context.Background(), path, store.Options{OnCommit: m.Commit})
	if err != nil {
		return nil, err
	}
	m.Watch(db, log)
	hosts := relay.New(relay.Config{Tasks: db.Tasks, Hosts: db.Hosts, Trail: db.Trail, Log: log, OnBreak: db.Hosts.BrokeOff})
	srv := server.New(server.Config{
		Store: db, Relay: hosts, Metrics: m, Authorize: mtls.Authorizer(httpjson.SocketAuthorizer(-1)), Version: "1.2.3", Log: log,
	})
	return &site{server: srv, handler: srv.Handler(), metrics: m, store: db, relay: hosts, path: path}, nil
}

func (s *site) close() error {
	s.relay.Close()
	return s.store.Close()
}

// speaker is the sender of a request: a daemon with its certificate, or a local process that may
// speak for a host. The zero value is root.
type speaker struct {
	cert        *mtls.Identity
	uid         uint32
	host, epoch string
	key         string // the idempotency key of the request
}

func certificate(id, name string) *mtls.Identity {
	return &mtls.Identity{Kind: mtls.KindHost, ID: id, Name: name}
}

// local returns the daemon of a host on the registry's own machine.
func local(host string) speaker { return speaker{host: host, epoch: "1"} }

func (as speaker) request(ctx context.Context, method, path, body string) *http.Request {
	if as.cert != nil {
		ctx = mtls.WithIdentity(ctx, *as.cert)
	} else {
		ctx = httpjson.WithPeer(ctx, httpjson.Peer{UID: as.uid})
	}
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	for name, value := range map[string]string{api.HostHeader: as.host, api.EpochHeader: as.epoch, api.IdempotencyKeyHeader: as.key} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	return r
}

func (s *site) speak(t testing.TB, as speaker, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, as.request(t.Context(), method, path, body))
	return w
}

func (s *site) do(t testing.TB, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	return s.speak(t, speaker{}, method, path, body)
}

// ok requires success and returns the value of the answer's noun.
func (s *site) ok(t testing.TB, method, path, body string) json.RawMessage {
	t.Helper()
	w := s.do(t, method, path, body)
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code > 299 || string(answer["schema_version"]) != "1" || len(answer) != 2 {
		t.Fatalf("%s %s = %d %s", method, path, w.Code, w.Body)
	}
	delete(answer, "schema_version")
	for _, v := range answer {
		return v
	}
	return nil
}

func wantError(t *testing.T, w *httptest.ResponseRecorder, code api.Code) {
	t.Helper()
	if e := expect.Refusal(w.Body.Bytes()); e == nil || e.Code != code || w.Code != code.HTTPStatus() {
		t.Errorf("answer = %d %.200s, want %s", w.Code, w.Body, code)
	}
}

// trail returns the whole audit trail and all volumes, to detect changes.
func (s *site) trail(t *testing.T) string {
	t.Helper()
	return string(s.ok(t, "GET", "/v1/events", "")) + string(s.ok(t, "GET", "/v1/volumes", ""))
}

// Objects of host a, of every kind.
var (
	hostID, otherID = storetest.HostA, storetest.HostB
	instanceID      = storetest.ID(storetest.InstanceKind, 1)
	volumeID        = storetest.ID(storetest.VolumeKind, 1)
	freeID          = storetest.ID(storetest.VolumeKind, 2)
	movingID        = storetest.ID(storetest.VolumeKind, 3)
	attachedID      = storetest.ID(storetest.AttachmentKind, 1)
	movedID         = storetest.ID(storetest.AttachmentKind, 3)
	dstID           = storetest.ID(storetest.AttachmentKind, 4)
	moveID          = storetest.Move
)

const (
	newID   = "60000000-0000-4000-8000-000000000001"
	taskOfA = "task-of-a"
	theirs  = `"host":"a","epoch":1`
)

// First reports of hosts, and a volume.
var (
	report = `{"id":"` + hostID + `","name":"a","version":"1","boot_id":"b","epoch":0,"pools":[],"instances":[]}`
	volume = `{"id":"` + volumeID + `","name":"data","status":"available","type":"","bootable":false,"host":"a",
		"location":{"path":"/fast/data","format":"raw","size_bytes":1048576}}`
	reportOfA = `{"id":"` + hostID + `","name":"a","version":"1","boot_id":"b","epoch":1,"instances":[],
		"pools":[{"name":"fast","type":"dir","path":"/fast","shared":false,"multiattach":false,"active":true,"capacity_bytes":0,"free_bytes":0},{"name":"slow","type":"dir","path":"/slow","shared":false,"multiattach":false,"active":true,"capacity_bytes":0,"free_bytes":0}]}`
	reportOfB = `{"id":"` + otherID + `","name":"b","version":"1","boot_id":"b","epoch":0,"pools":[],"instances":[]}`
)

func location(name string) string {
	return `{"pool":"fast","name":"` + name + `","path":"/fast/` + name + `","format":"raw","size_bytes":1048576}`
}

// fill gives host a an object of every kind, and returns the id of its drain.
func (s *site) fill(t testing.TB) (drainID string) {
	t.Helper()
	ctx, nobody := t.Context(), store.Call{}
	s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", reportOfA)
	s.ok(t, "POST", "/v1/hosts/"+otherID+"/report", reportOfB)
	expect.Value(s.store.Instances.Register(ctx, nobody, api.InstanceRegister{ID: instanceID, Name: "web", Host: "a", State: api.InstanceRunning, Disks: []api.AdoptedDisk{
		{VolumeID: volumeID, VolumeName: "data", AttachmentID: attachedID, Device: "vda", Mode: api.ModeRW, Location: storetest.At("/fast/data")},
		{VolumeID: movingID, VolumeName: "moving", AttachmentID: movedID, Device: "vdb", Mode: api.ModeRW, Location: storetest.At("/fast/moving")},
	}}))(t)
	expect.Value(s.store.Volumes.Register(ctx, nobody, api.VolumeRegister{ID: freeID, Name: "free", Status: api.VolumeAvailable, Host: "a", Location: storetest.At("/fast/free")}))(t)
	move := storetest.RootMigration()
	move.VolumeID, move.SrcAttachmentID, move.DstAttachmentID, move.Dst = movingID, movedID, dstID, storetest.At("/slow/moving")
	expect.Value(s.store.Migrations.Register(ctx, nobody, move))(t)
	expect.Value(s.store.Types.Create(ctx, nobody, api.VolumeTypeCreate{Name: "gold"}))(t)
	_, _, err := s.store.Tasks.Create(ctx, nobody, api.Task{ID: taskOfA, Host: "a", Who: "x", Method: "POST", Path: "/v1/x"}, workflow.TaskRequest{})
	expect.OK(t, err)
	return expect.Value(s.store.Drains.Create(ctx, nobody, "fast", api.PoolDrain{ToPool: "slow"}))(t).ID
}

// seenAt matches times of reports, which are not changes.
var seenAt = regexp.MustCompile(`"updated_at":"[^"]*"`)

// dump returns all visible state, except audited refusals.
func (s *site) dump(t testing.TB) []string {
	t.Helper()
	var lines []string
	events := expect.Value(s.store.Trail.Events(t.Context(), 0))(t)
	for _, e := range events {
		if e.Result == "" {
			lines = append(lines, fmt.Sprint(e.What, e.Object, e.From, e.To))
		}
	}
	for _, path := range []string{"/v1/volumes", "/v1/attachments", "/v1/instances", "/v1/migrations?all=1", "/v1/types", "/v1/pools", "/v1/drains", "/v1/policies"} {
		lines = append(lines, seenAt.ReplaceAllString(string(s.ok(t, "GET", path, "")), ""))
	}
	return lines
}
