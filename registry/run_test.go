// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	hostID       = "10000000-0000-4000-8000-000000000001"
	instanceID   = "20000000-0000-4000-8000-000000000001"
	volumeID     = "30000000-0000-4000-8000-000000000001"
	attachmentID = "40000000-0000-4000-8000-000000000001"
	dstID        = "40000000-0000-4000-8000-000000000002"
	migrationID  = "50000000-0000-4000-8000-000000000001"
)

func location(path string) api.Location {
	return api.Location{Path: path, Format: api.FormatRaw, SizeBytes: 1 << 20}
}

// program is the registry, running in this process.
type program struct {
	*client.Registry
	dir  string
	log  *talk
	stop func() error
}

// talk has the program's log.
type talk struct {
	mu    sync.Mutex
	b     bytes.Buffer
	wrote *sync.Cond
}

func newTalk() *talk {
	l := new(talk)
	l.wrote = sync.NewCond(&l.mu)
	return l
}

func (l *talk) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.wrote.Broadcast()
	return l.b.Write(p)
}

// await returns when the log has text.
func (l *talk) await(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !strings.Contains(l.b.String(), text) {
		l.wrote.Wait()
	}
}

func start(t *testing.T, dir string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	socket := filepath.Join(dir, "registry.sock")
	done := make(chan error, 1)
	log := newTalk()
	args = append([]string{"--config", os.DevNull, "--socket", socket, "--db", filepath.Join(dir, "state", "registry.db"), "--metrics-listen", "off"}, args...)
	go func() { done <- run(ctx, args, log, log) }()
	registry, err := client.NewRegistry("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{Registry: registry, dir: dir, log: log, stop: func() error {
		registry.Close()
		cancel()
		return <-done
	}}
	if err := untilAnswered(t, func() error { _, err := registry.Status(t.Context()); return err }); err != nil {
		t.Fatalf("the registry did not start: %v; %v", err, p.stop())
	}
	return p
}

// untilAnswered repeats a request to a registry that may not listen yet.
func untilAnswered(t *testing.T, ask func() error) error {
	t.Helper()
	away := func(err error) bool { return api.CodeOf(err) == api.CodeRegistryUnavailable }
	return retry.Do(t.Context(), retry.Backoff{First: 20 * time.Millisecond, Max: time.Second}, 20*time.Second, ask, away)
}

func (p *program) end(t *testing.T) {
	t.Helper()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// adopt makes host a adopt instance web with volume root.
func (p *program) adopt(t *testing.T) {
	t.Helper()
	host := must(p.Report(t.Context(), api.HostReport{ID: hostID, Name: "a", Pools: []api.Pool{{Name: "fast", Type: "dir", Path: "/fast"}}}))(t)
	if host.Epoch != 1 || host.Status != api.HostUp {
		t.Errorf("host = %+v", host)
	}
	zero := 0
	must(p.RegisterInstance(t.Context(), "op-1", api.InstanceRegister{
		ID: instanceID, Name: "web", Host: hostID, State: api.InstanceRunning,
		Disks: []api.AdoptedDisk{{
			VolumeID: volumeID, VolumeName: "root", AttachmentID: attachmentID, Device: "vda", BootIndex: &zero, Mode: api.ModeRW, Location: location("/fast/root"),
		}},
	}))(t)
}

func TestMigrationFromAdoptionToTheEndAcrossARestart(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	p.adopt(t)
	in := api.MigrationRegister{
		ID: migrationID, VolumeID: volumeID, SrcAttachmentID: attachmentID, DstAttachmentID: dstID, Host: hostID,
		Epoch: 1, Generation: 1, Dst: location("/slow/root"), Method: "overlay", OpID: "op-2",
	}
	m := must(p.RegisterMigration(t.Context(), "op-2.register", in))(t)
	p.end(t)

	p = start(t, dir)
	defer p.end(t)
	if diff := cmp.Diff(m, must(p.RegisterMigration(t.Context(), "op-2.register", in))(t)); diff != "" {
		t.Errorf("the repeated request (-first +again):\n%s", diff)
	}
	if _, err := p.RegisterMigration(t.Context(), "op-3", in2(in)); api.CodeOf(err) != api.CodeMigrationActive || api.AsError(err).Details["migration_id"] != migrationID {
		t.Errorf("a second migration: error = %#v", err)
	}
	for _, to := range []api.MigrationState{api.MigrationStarted, api.MigrationCompleting, api.MigrationCompleted} {
		must(p.TransitionMigration(t.Context(), "op-2."+string(to), migrationID, api.MigrationTransition{
			From: []api.MigrationState{api.MigrationStarting, api.MigrationStarted, api.MigrationCompleting}, To: to, Host: hostID, Epoch: 1, OpID: "op-2",
		}))(t)
	}
	v := must(p.Volume(t.Context(), "root"))(t)
	if v.Location != location("/slow/root") || v.Generation != 2 || len(v.Attachments) != 1 || v.Attachments[0].ID != dstID {
		t.Errorf("volume = %+v", v)
	}
	if all := must(p.Migrations(t.Context(), "root", true))(t); len(all) != 1 || all[0].State != api.MigrationCompleted {
		t.Errorf("migrations = %+v", all)
	}
	if open := must(p.Migrations(t.Context(), "", false))(t); len(open) != 0 {
		t.Errorf("open migrations = %+v", open)
	}
	if err := errors.Join(p.ForgetInstance(t.Context(), "op-4", "web"), p.DeleteVolume(t.Context(), "op-5", "root")); err != nil {
		t.Error(err)
	}
}

// in2 returns another migration of the same volume.
func in2(in api.MigrationRegister) api.MigrationRegister {
	in.ID, in.DstAttachmentID, in.Dst = "50000000-0000-4000-8000-000000000002", "40000000-0000-4000-8000-000000000003", location("/third/root")
	return in
}

func TestFollowerMissesNothing(t *testing.T) {
	p := start(t, t.TempDir())
	defer p.end(t)
	p.adopt(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen []string
	for e, err := range p.FollowEvents(ctx, 1) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e.What)
		if len(seen) == 1 {
			must(p.PostEvent(t.Context(), "", api.EventPost{What: "while following"}))(t)
		}
		if len(seen) == 2 {
			break
		}
	}
	if diff := cmp.Diff([]string{"instance.register", "posted.while following"}, seen); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestBackupOfARunningRegistryCanBeOpened(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	defer p.end(t)
	p.adopt(t)
	db, backup := filepath.Join(dir, "state", "registry.db"), filepath.Join(dir, "backup.db")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"backup", "--db", db, backup}, &out, &out); err != nil {
		t.Fatal(err)
	}
	s, err := workflow.Open(t.Context(), backup, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.Volumes.Get(t.Context(), "root", store.Viewer{}); err != nil || v.ID != volumeID {
		t.Errorf("volume in the backup = %+v, %v", v, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), []string{"backup", "--db", db, backup}, &out, &out); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second backup to the same file: error = %v", err)
	}
}

func TestSecondRegistryOnOneDatabaseIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	defer p.end(t)
	var out bytes.Buffer
	err := run(t.Context(), []string{"--db", filepath.Join(dir, "state", "registry.db"), "--socket", filepath.Join(dir, "other.sock"), "--metrics-listen", ""}, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("error = %v", err)
	}
}

func TestConfigurationIsReadAndChecked(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		file string
		args []string
		want string // in the error; "" for none
	}{
		"defaults":          {"", nil, ""},
		"all keys":          {"socket = '/run/x/s'\nsocket_group = ''\ndb = '/var/x/db'\nlisten = 'off'\ntls_dir = '/var/x/tls'\nca_dir = '/var/x/ca'\nmetrics_listen = 'off'\nmax_handshakes = 9\nmax_handshakes_per_address = 8\nmax_connections_per_caller = 7\nlog_level = 'debug'\n", nil, ""},
		"flag wins":         {"log_level = 'loud'\n", []string{"--log-level", "warn"}, ""},
		"unknown key":       {"sokket = '/run/x/s'\n", nil, "no key sokket"},
		"no TOML":           {"socket\n", nil, "read configuration"},
		"relative socket":   {"socket = 's'\n", nil, "socket is"},
		"relative database": {"db = 'db'\n", nil, "db is"},
		"bad address":       {"metrics_listen = '9644'\n", nil, "metrics_listen"},
		"relative tls_dir":  {"tls_dir = 'tls'\n", nil, "tls_dir is"},
		"relative ca_dir":   {"ca_dir = 'ca'\n", nil, "ca_dir is"},
		"no certificate":    {"listen = ':1'\ntls_dir = '/nowhere'\n", nil, "init-ca"},
		"bad level":         {"log_level = 'loud'\n", nil, "loud"},
		"unknown group":     {"socket_group = 'no-such-group'\n", nil, "socket_group"},
		"no handshakes":     {"max_handshakes = 0\n", nil, "max_handshakes is 0"},
		"none per address":  {"", []string{"--max-handshakes-per-address", "0"}, "max_handshakes_per_address is 0"},
		"no connections":    {"max_connections_per_caller = -1\n", nil, "max_connections_per_caller is -1"},
		"argument":          {"", []string{"extra"}, "extra"},
		"shared pools":      {"shared_pools = ['nfs', 'san']\n", nil, ""},
		"no shared pool":    {"", []string{"--shared-pools", ""}, ""},
		"with their hosts":  {"[shared_pools]\nnfs = ['alpha', 'beta']\n", nil, ""},
		"hosts in a list":   {"shared_pools = ['nfs=alpha+beta', 'san']\n", []string{"--shared-pools", "nfs=alpha+beta,san"}, ""},
		"no host shares it": {"[shared_pools]\nnfs = []\n", nil, "no host"},
		"no list of hosts":  {"[shared_pools]\nnfs = 'alpha'\n", nil, "no list of hosts"},
		"a host twice":      {"", []string{"--shared-pools", "nfs=a+a"}, "there twice"},
		"shared twice":      {"", []string{"--shared-pools", "nfs,nfs"}, "shared_pools"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".toml")
			if err := os.WriteFile(file, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, talk bytes.Buffer
			err := run(t.Context(), append([]string{"check-config", "--config", file}, tc.args...), &out, &talk)
			if tc.want == "" && (err != nil || out.String() != "the configuration is right\n") || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error = %v, output %q, want %q", err, out.String(), tc.want)
			}
		})
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"check-config", "--config", filepath.Join(dir, "none")}, &out, &out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a named file that is missing: error = %v", err)
	}
}

func TestCommandsThatNeedNoRegistry(t *testing.T) {
	for name, tc := range map[string]struct {
		args              []string
		stdout, talk, err string
	}{
		"help":      {[]string{"--help"}, "", "-metrics-listen", ""},
		"version":   {[]string{"version"}, "volferry-registry ", "", ""},
		"unknown":   {[]string{"dance"}, "", "", `no command "dance"`},
		"--version": {[]string{"--version"}, "volferry-registry ", "", ""},
		"bad flag":  {[]string{"--dance"}, "", "", "dance"},
		"no target": {[]string{"backup"}, "", "", "give backup FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, talk bytes.Buffer
			err := run(t.Context(), tc.args, &out, &talk)
			if !strings.HasPrefix(out.String(), tc.stdout) || !strings.Contains(talk.String(), tc.talk) || (err == nil) != (tc.err == "") ||
				err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("stdout %q, talk %q, error %v", out.String(), talk.String(), err)
			}
		})
	}
}
