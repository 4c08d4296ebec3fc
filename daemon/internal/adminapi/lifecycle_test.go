// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

const web = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0005"

// shelfRegistry has one instance, on this host or on no host.
type shelfRegistry struct {
	Registry
	inst api.Instance
}

func (r *shelfRegistry) Instance(_ context.Context, ref string) (api.Instance, error) {
	if ref != "web" && ref != web {
		return api.Instance{}, api.Errorf(api.CodeNotFound, "there is no instance %s", ref)
	}
	return r.inst, nil
}

func (r *shelfRegistry) Attachment(context.Context, string) (api.Attachment, error) {
	return api.Attachment{ID: "a", InstanceID: web, Host: r.inst.Host}, nil
}

func (r *shelfRegistry) Attachments(context.Context, string, string) ([]api.Attachment, error) {
	return nil, nil
}

func (r *shelfRegistry) PermitPause(context.Context, string, string, api.PausePermit) (api.Migration, error) {
	return api.Migration{}, nil
}

func (r *shelfRegistry) TransitionInstance(context.Context, string, string, api.InstanceTransition) (api.ShelvedInstance, error) {
	return api.ShelvedInstance{}, api.Errorf(api.CodePolicyDenied, "not in this test")
}

type noMigrations struct{}

func (noMigrations) List(context.Context, bool) ([]api.Migration, error) { return nil, nil }
func (noMigrations) MayStart(context.Context, string) error              { return nil }
func (noMigrations) Switching(string) bool                               { return false }
func (noMigrations) StoodStill(context.Context, string, string) error    { return nil }

func (noMigrations) Misnamed(context.Context, string, bool) ([]hv.NamedChain, error) {
	return nil, nil
}

func (noMigrations) Standing(context.Context, string) (bool, error) { return false, nil }
func (noMigrations) NameStanding(context.Context, string) error     { return nil }

func (noMigrations) CheckPaused(context.Context, api.Volume, api.Attachment, []string) error {
	return nil
}

// newLifecycle returns an API with an instance web that is off, on this host or on none. Its
// registry answers forwarded requests with 418.
func newLifecycle(t *testing.T, inst api.Instance) (*Server, *hvtest.Fake) {
	t.Helper()
	s := newServer(t, serveRegistry(t, passedOn), nil)
	inst.ID, inst.Name = web, "web"
	fake, records, quiet := hvtest.New(), optest.NewJournal(), slog.New(slog.DiscardHandler)
	expect.OK(t, fake.Define(hv.Domain{ID: web, Name: "web"}))
	registry := &shelfRegistry{inst: inst}
	d := hosttest.Start(t, hosttest.Program[*instance.Manager]{
		Runner: op.Config{Journal: records, Describe: request.Describe},
		New: func(runner *op.Runner) *instance.Manager {
			host := func(context.Context) (instance.Host, error) {
				return instance.Host{ID: "h", Name: "alpha", Epoch: 1}, nil
			}
			return instance.New(instance.Config{}, instance.Ports{
				Domains: fake, Definitions: fake, Devices: fake, Power: fake, Memory: fake, Registry: volumeless{registry}, Guards: hosttest.NewGuards(nil), Migrations: noMigrations{}, MovingGuests: noMigrations{}, Parts: noMigrations{}, Recorded: func(context.Context, string) error { return nil }, Report: func(context.Context) error { return nil },
			}, runner, records, host, quiet)
		},
	})
	s.HostID, s.HostName = "h", "alpha"
	s.HV, s.Registry = fake, registry
	s.Instances, s.Runner = d.Now()
	s.Migrations = migrate.New(move.Config{}, move.Ports{}, s.Runner, records, nil, quiet)
	return s, fake
}

// volumeless is a site with a registry that is asked only about instances.
type volumeless struct{ *shelfRegistry }

func (volumeless) Migration(context.Context, string) (api.Migration, error) {
	return api.Migration{}, api.Errorf(api.CodeNotFound, "not in this test")
}

func waitForOp(t *testing.T, s *Server, id string) {
	t.Helper()
	if _, err := s.Runner.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func TestPowerIsAnsweredWithTheOpAndTheInstance(t *testing.T) {
	s, fake := newLifecycle(t, api.Instance{Host: "alpha", State: api.InstanceStopped})
	for _, c := range []struct {
		verb, body string
		want       hv.State
	}{
		{"start", "", hv.StateRunning},
		{"pause", "", hv.StatePaused},
		{"unpause", "", hv.StateRunning},
		{"reboot", "", hv.StateRunning},
		{"stop", `{"force":true}`, hv.StateStopped},
		{"start", "", hv.StateRunning},
		{"stop", `{"timeout_seconds":60}`, hv.StateStopped},
	} {
		status, body := askOf(t, s, http.MethodPost, "/v1/instances/web/"+c.verb, c.body)
		var answer struct {
			Op       api.Op
			Instance api.Instance
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusAccepted || answer.Op.Kind != "instance_"+c.verb || answer.Instance.ID != web {
			t.Fatalf("%s: %d %s (%v)", c.verb, status, body, err)
		}
		if st, err := s.Runner.Wait(t.Context(), answer.Op.ID); err != nil || st.State != op.StateDone {
			t.Fatalf("%s is %s (%v): %+v", c.verb, st.State, err, st.Failure)
		}
		if dom, err := fake.Domain(t.Context(), web); err != nil || dom.State != c.want {
			t.Errorf("after %s the domain is %v (%v), want %s", c.verb, dom, err, c.want)
		}
	}
}

func TestARefusalOfPowerIsTheAnswer(t *testing.T) {
	zero := 0
	s, _ := newLifecycle(t, api.Instance{Host: "alpha", State: api.InstanceStopped, BlockDeviceMappings: []api.BlockDeviceMapping{{Device: "vda", BootIndex: &zero}}})
	wantError(t, s, "POST", "/v1/instances/web/start", api.CodeRootVolumeMissing)
	wantError(t, s, "POST", "/v1/instances/web/stop", api.CodeStateForbidden)
	wantError(t, s, "POST", "/v1/instances/web/pause", api.CodeStateForbidden)
	wantError(t, s, "POST", "/v1/instances/other/start", api.CodeNotFound)
	wantError(t, s, "POST", "/v1/instances/web/unshelve", api.CodeStateForbidden)
	for _, body := range []string{`{"force":1}`, `{"timeout_seconds":-1}`, `{"timeout_seconds":1000000}`} {
		if status, answer := askOf(t, s, "POST", "/v1/instances/web/stop", body); status != http.StatusBadRequest {
			t.Errorf("stop with %q: %d %s", body, status, answer)
		}
	}
}

func TestAShelveThatIsRefusedSaysSo(t *testing.T) {
	s, fake := newLifecycle(t, api.Instance{Host: "alpha", State: api.InstanceStopped})
	expect.OK(t, fake.SetLeansOn(web, "a GPU"))
	wantError(t, s, "POST", "/v1/instances/web/shelve", api.CodeUnsupportedDisk)
}

// The registry serves an instance that no host has, and an unshelve to another host.
func TestWhatIsTheRegistrysIsPassedOnWhole(t *testing.T) {
	shelved, here := api.Instance{State: api.InstanceShelvedOffloaded}, api.Instance{Host: "alpha", State: api.InstanceStopped}
	for _, c := range []struct {
		inst               api.Instance
		method, path, body string
	}{
		{shelved, "POST", "/v1/volumes/v/attach", `{"instance":"web","root":true}`},
		{shelved, "POST", "/v1/volumes/v/detach", `{"instance":"web"}`},
		{shelved, "DELETE", "/v1/attachments/a?force=1", ``},
		{shelved, "POST", "/v1/instances/web/unshelve", `{"host":"beta"}`},
		{here, "POST", "/v1/instances/web/lock", `{"reason":"audit"}`},
		{here, "POST", "/v1/instances/web/unlock", ``},
	} {
		s, _ := newLifecycle(t, c.inst)
		status, body := askOf(t, s, c.method, c.path, c.body)
		if want := c.method + " " + c.path + "  " + c.body; status != http.StatusTeapot || body != want {
			t.Errorf("%s %s: %d %q, want the registry's answer %q", c.method, c.path, status, body, want)
		}
	}
}

// A request of the registry to a host is not passed back.
func TestATaskIsNotPassedOn(t *testing.T) {
	s, _ := newLifecycle(t, api.Instance{State: api.InstanceShelvedOffloaded})
	for path, body := range map[string]string{
		"/v1/volumes/v/attach": `{"instance":"web"}`, "/v1/volumes/v/detach": `{"instance":"web"}`, "/v1/instances/web/unshelve": `{"host":"beta"}`,
	} {
		a := s.Perform(t.Context(), api.Task{ID: "op", Method: http.MethodPost, Path: path, Body: json.RawMessage(body)})
		if a.Status != api.CodeNotYourHost.HTTPStatus() || !strings.Contains(string(a.Body), string(api.CodeNotYourHost)) {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
}

// While the registry does not answer, this host's own observations are still current.
func TestTheStateOfAnInstanceIsOfNowWhileTheRegistryIsAway(t *testing.T) {
	s := newServer(t, nowhere, memory{"registry-view.json": `{"read_at":"2026-01-01T00:00:00Z",
		"instances":[{"id":"` + web + `","name":"web","host":"alpha","state":"running"},{"id":"x","name":"far","host":"beta","state":"running"}]}`})
	fake := hvtest.New()
	expect.OK(t, fake.Define(hv.Domain{ID: web, Name: "web"}))
	s.HV, s.HostName = fake, "alpha"
	if _, body := askOf(t, s, "GET", "/v1/instances/web", ""); !strings.Contains(body, `"state":"stopped"`) {
		t.Errorf("shown is %s", body)
	}
	if _, body := askOf(t, s, "GET", "/v1/instances", ""); strings.Count(body, `"state":"running"`) != 1 {
		t.Errorf("listed are %s", body)
	}
}

// noRegistry answers every question about a migration with an error.
type noRegistry struct {
	Registry
	err error
}

func (r noRegistry) Migration(context.Context, string) (api.Migration, error) {
	return api.Migration{}, r.err
}

// The registry may lead the migration. A waiting caller must continue to wait.
func TestAMigrationThatIsNotKnownHereIsNotMissingWhileTheRegistryIsAway(t *testing.T) {
	s, _ := newLifecycle(t, api.Instance{Host: "alpha"})
	for _, code := range []api.Code{api.CodeRegistryUnavailable, api.CodeNotFound} {
		s.Registry = noRegistry{err: api.Errorf(code, "said by the registry")}
		wantError(t, s, http.MethodGet, "/v1/migrations/11112222", code)
		wantError(t, s, http.MethodGet, "/v1/migrations/11112222/events", code)
	}
}
