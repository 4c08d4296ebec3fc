// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

// A route is: method, path, op id, first bytes of the body.
func TestCallsOfTheRegistry(t *testing.T) {
	var got string
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = strings.Join([]string{r.Method, r.URL.RequestURI(), r.Header.Get(api.IdempotencyKeyHeader), string(body[:min(len(body), 14)])}, " ")
		answering(200, `{"schema_version":1,"it":null}`).ServeHTTP(w, r)
	}))
	r, err := client.NewRegistry(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	ctx := t.Context()
	for want, call := range map[string]func() error{
		"GET /v1/status  ":                                    func() error { return errOf(r.Status(ctx)) },
		`POST /v1/hosts/h/report  {"id":"h","nam`:             func() error { return errOf(r.Report(ctx, api.HostReport{ID: "h", Name: "alpha"})) },
		"GET /v1/hosts  ":                                     func() error { return errOf(r.Hosts(ctx)) },
		"GET /v1/hosts/h  ":                                   func() error { return errOf(r.Host(ctx, "h")) },
		`POST /v1/hosts/h/fence op {"evidence":"o`:            func() error { return errOf(r.FenceHost(ctx, "op", "h", api.HostFence{Evidence: "off"})) },
		`POST /v1/hosts/h/rejoin  {"epoch":7}`:                func() error { return errOf(r.RejoinHost(ctx, "h", api.HostRejoin{Epoch: 7})) },
		"GET /v1/hosts/h/tasks?session=s+1&wait_seconds=30  ": func() error { return errOf(r.Tasks(ctx, "h", "s 1", 30*time.Second)) },
		`POST /v1/hosts/h/tasks/t%2F/answer  {"status":200,`: func() error {
			return r.AnswerTask(ctx, "h", "t/", api.TaskAnswer{Status: 200, Body: json.RawMessage("{}")})
		},
		"GET /v1/pools  ":                                 func() error { return errOf(r.Pools(ctx)) },
		"GET /v1/pools/p?host=h  ":                        func() error { return errOf(r.Pool(ctx, "p", "h")) },
		"GET /v1/types  ":                                 func() error { return errOf(r.Types(ctx)) },
		"GET /v1/types/a%20b  ":                           func() error { return errOf(r.Type(ctx, "a b")) },
		`POST /v1/types op {"name":"x"}`:                  func() error { return errOf(r.CreateType(ctx, "op", api.VolumeTypeCreate{Name: "x"})) },
		"DELETE /v1/types/x op ":                          func() error { return r.DeleteType(ctx, "op", "x") },
		"GET /v1/policies  ":                              func() error { return errOf(r.Policies(ctx)) },
		"GET /v1/volumes  ":                               func() error { return errOf(r.Volumes(ctx)) },
		"GET /v1/volumes/v  ":                             func() error { return errOf(r.Volume(ctx, "v")) },
		`POST /v1/volumes:register op {"id":"v","nam`:     func() error { return errOf(r.RegisterVolume(ctx, "op", api.VolumeRegister{ID: "v"})) },
		`POST /v1/volumes/v/transition op {"from":"error`: func() error { return errOf(r.TransitionVolume(ctx, "op", "v", api.VolumeTransition{From: "error"})) },
		`POST /v1/volumes/v/grow op {"from_bytes":`: func() error {
			return errOf(r.GrowVolume(ctx, "op", "v", api.VolumeGrow{FromBytes: 1}))
		},
		`POST /v1/volumes/v/retype op {"type":"fast"`:   func() error { return errOf(r.RetypeVolume(ctx, "op", "v", api.VolumeRetype{Type: "fast"})) },
		"POST /v1/volumes/v/forget op {}":               func() error { return r.DeleteVolume(ctx, "op", "v") },
		"GET /v1/instances  ":                           func() error { return errOf(r.Instances(ctx)) },
		"GET /v1/instances/i  ":                         func() error { return errOf(r.Instance(ctx, "i")) },
		`POST /v1/instances:register op {"id":"i","nam`: func() error { return errOf(r.RegisterInstance(ctx, "op", api.InstanceRegister{ID: "i"})) },
		"DELETE /v1/instances/i op ":                    func() error { return r.ForgetInstance(ctx, "op", "i") },
		"GET /v1/attachments?instance=i&volume=v  ":     func() error { return errOf(r.Attachments(ctx, "v", "i")) },
		"GET /v1/attachments/a  ":                       func() error { return errOf(r.Attachment(ctx, "a")) },
		`POST /v1/attachments op {"id":"a","vol`:        func() error { return errOf(r.ReserveAttachment(ctx, "op", api.AttachmentReserve{ID: "a"})) },
		`POST /v1/attachments/a/transition op {"from":null,"`: func() error {
			return errOf(r.TransitionAttachment(ctx, "op", "a", api.AttachmentTransition{}))
		},
		`POST /v1/attachments/a/release op {"host":"h","e`: func() error {
			return errOf(r.ReleaseAttachment(ctx, "op", "a", api.AttachmentRelease{Host: "h"}))
		},
		"DELETE /v1/attachments/a?force=1 op ":               func() error { return r.DeleteAttachment(ctx, "op", "a") },
		"GET /v1/migrations?all=1&volume=v  ":                func() error { return errOf(r.Migrations(ctx, "v", true)) },
		"GET /v1/migrations/m  ":                             func() error { return errOf(r.Migration(ctx, "m")) },
		`POST /v1/migrations:register op {"id":"m","vol`:     func() error { return errOf(r.RegisterMigration(ctx, "op", api.MigrationRegister{ID: "m"})) },
		`POST /v1/migrations/m/transition op {"from":null,"`: func() error { return errOf(r.TransitionMigration(ctx, "op", "m", api.MigrationTransition{})) },
		`POST /v1/migrations/m/abandon op {"keep":"src",`:    func() error { return errOf(r.AbandonMigration(ctx, "op", "m", api.MigrationAbandon{Keep: "src"})) },
		"GET /v1/events?since=3  ":                           func() error { return errOf(r.Events(ctx, 3)) },
		`POST /v1/events op {"at":"0001-01`:                  func() error { return errOf(r.PostEvent(ctx, "op", api.EventPost{})) },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

func TestWaitForTasksOutlivesTheTimeoutOfOtherCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(200 * time.Millisecond): // like a task that comes late
		case <-r.Context().Done():
		}
		answering(200, `{"schema_version":1,"tasks":[{"id":"t"}]}`).ServeHTTP(w, r)
	}))
	r, err := client.NewRegistry(path, client.Timeout(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	if tasks, err := r.Tasks(t.Context(), "h", "s", 20*time.Second); err != nil || len(tasks) != 1 || tasks[0].ID != "t" {
		t.Errorf("tasks = %+v, %v", tasks, err)
	}
	if _, err := r.Status(t.Context()); api.CodeOf(err) != api.CodeRegistryUnavailable {
		t.Errorf("another call: %v", err)
	}
}

// A newer registry may add members to an answer.
func TestAnAnswerWithMembersThatAreUnknownIsReadByItsNoun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, answering(200, `{"schema_version":1,"volume":{"id":"v","name":"a"},"warnings":["new"]}`))
	r, err := client.NewRegistry("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	if v, err := r.Volume(t.Context(), "v"); err != nil || v.Name != "a" {
		t.Errorf("volume = %+v, %v", v, err)
	}
}
