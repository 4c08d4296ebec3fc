// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/doctor"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/programs"
	"github.com/volferry/volferry/daemon/internal/sandbox"
)

// fakeConnector installs a connector that accepts a pool with the right option "is", and returns
// its directory.
func fakeConnector(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const script = `#!/bin/sh
in=$(cat)
case $in in
*'"options":{"is":"good"}'*) echo '{"protocol":1,"pool":{"directory":"/dev/fake","capacity_bytes":2048,"free_bytes":1024,"granularity_bytes":512,"verbs":["inspect","create","delete"]}}' ;;
*) echo '{"protocol":1,"error":{"code":"invalid","message":"it is not good"}}' ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "fake"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func fakePools(t *testing.T) []string {
	file := writeConfig(t, `
[connector_pools]
good = { connector = "fake", is = "good" }
bad = { connector = "fake", is = "bad" }
gone = { connector = "nowhere" }
`)
	return []string{"--config", file, "--connector-dir", fakeConnector(t)}
}

// TestPoolsOfConnectorsAreThoseOfTheConfiguration, whether the daemon or its helper runs the
// connectors.
func TestPoolsOfConnectorsAreThoseOfTheConfiguration(t *testing.T) {
	for _, who := range []string{"itself", "another program"} {
		t.Run(who, func(t *testing.T) {
			args := fakePools(t)
			cfg, err := load(t, args)
			if err != nil {
				t.Fatal(err)
			}
			if err := cfg.CheckConnectors(); err != nil {
				t.Fatal(err)
			}
			if who != "itself" {
				t.Setenv(programs.EnvConnectors, servedConnectors(t, args))
			}
			h := programs.WithConnectors(hvtest.New(), cfg)
			list, err := h.Pools(t.Context())
			if err != nil || len(list) != 3 {
				t.Fatalf("the pools are %+v, %v", list, err)
			}
			for _, p := range list {
				says := map[string]string{"good": "", "bad": "it is not good", "gone": "connectors are installed in"}[p.Name]
				if p.Type != hv.ConnectorPool || p.Active != (says == "") || !strings.Contains(p.Problem, says) {
					t.Errorf("a pool is %+v", p)
				}
			}
			checks := (&doctor.Doctor{Cfg: cfg, HV: h}).Pools(t.Context())
			for _, c := range checks {
				if c.Name == "pool bad" && (c.Status != "fail" || !strings.Contains(c.Message, "it is not good")) {
					t.Errorf("doctor says %+v", c)
				}
			}
		})
	}
}

// servedConnectors returns the socket of `volferryd connectors`.
func servedConnectors(t *testing.T, args []string) string {
	t.Helper()
	address := &net.UnixAddr{Name: "@volferry-connectors-" + filepath.Base(t.TempDir()) + t.Name(), Net: "unixpacket"}
	address.Name = strings.NewReplacer("/", "-", " ", "-").Replace(address.Name)
	l, err := net.ListenUnix("unixpacket", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- sandbox.ServeConnectors(ctx, l, programs.RunConnectors(args).RunText, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return address.Name
}

// TestTheNextDaemonIsToldOfAVolumeWhenItIsMade: the connector that the previous daemon has called
// still works on the volume.
func TestTheNextDaemonIsToldOfAVolumeWhenItIsMade(t *testing.T) {
	dir := t.TempDir()
	for _, pipe := range []string{"begun", "go"} {
		if err := unix.Mkfifo(filepath.Join(dir, pipe), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\ncd " + dir + `
case $(cat) in
*'"verb":"create"'*) echo >begun; read on <go; touch made ;;
*'"volume"'*) [ -e made ] || exec echo '{"protocol":1,"error":{"code":"not_found","message":"it is not there"}}' ;;
*) exec echo '{"protocol":1,"pool":{"directory":"/dev/fake","capacity_bytes":2048,"free_bytes":1024,"granularity_bytes":512,"verbs":["inspect","create","delete"]}}' ;;
esac
echo '{"protocol":1,"volume":{"name":"v","path":"/dev/fake/v","size_bytes":512,"identity":"x","op_id":"a"}}'
`
	if err := os.WriteFile(filepath.Join(dir, "slow"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	args := []string{"--connector-dir", dir, "--config", writeConfig(t, "[connector_pools]\nfast = { connector = \"slow\" }\n")}
	cfg, err := load(t, args)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(programs.EnvConnectors, servedConnectors(t, args))
	before, die := context.WithCancel(hv.WithOp(t.Context(), "a"))
	died := make(chan error, 1)
	go func() {
		_, err := programs.WithConnectors(hvtest.New(), cfg).CreateVolume(before, "fast", "v", "raw", 512, nil)
		died <- err
	}()
	if _, err := os.ReadFile(filepath.Join(dir, "begun")); err != nil {
		t.Fatal(err)
	}
	die()
	if err := <-died; err == nil {
		t.Fatal("it was made before the daemon died")
	}
	next := programs.WithConnectors(hvtest.New(), cfg)
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if v, err := next.LookupVolume(soon, "fast", "v"); err == nil || errors.Is(err, hv.ErrNotFound) {
		t.Errorf("while it is made: %+v, %v", v, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err := next.LookupVolume(t.Context(), "fast", "v"); err != nil || v.OpID != "a" {
		t.Errorf("it is %+v, %v", v, err)
	}
}

func TestAConnectorThatIsNotThereKeepsNoDaemonFromStarting(t *testing.T) {
	cfg, err := load(t, fakePools(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.WarnConnectors(); len(got) != 1 || !strings.Contains(got[0], "pool gone cannot be used") {
		t.Errorf("the warnings are %q", got)
	}
}

func TestPoolsThatNameNoConnectorAreRefused(t *testing.T) {
	for what, line := range map[string]string{
		"none":    `fast = { vg = "vg" }`,
		"a path":  `fast = { connector = "/bin/sh" }`,
		"no text": `fast = { connector = "lvm", extents = 4 }`,
	} {
		cfg, err := load(t, []string{"--config", writeConfig(t, "[connector_pools]\n"+line+"\n")})
		if err == nil {
			err = cfg.CheckConnectors()
		}
		if err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

// TestConnectorTestFindsWhatIsWrong with a connector that only knows its pool.
func TestConnectorTestFindsWhatIsWrong(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"connector-test", filepath.Join(fakeConnector(t), "fake"), "is=good"}, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "violates the protocol in") {
		t.Errorf("it ends with %v", err)
	}
	for _, want := range []string{"ok    inspect says what the pool is", "FAIL  a protocol that there is not is refused", "FAIL  create makes a volume"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not print %q:\n%s", want, out.String())
		}
	}
	for what, args := range map[string][]string{"no program": {"connector-test"}, "no option": {"connector-test", "/bin/true", "x"}} {
		if err := run(t.Context(), args, &out, &out); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}
