// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/conformance"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
)

const (
	nqn  = "nqn.2026-11.test.volferry"
	one  = "nvme-uuid.11111111-2222-4333-8444-555555555555"
	two  = "nvme-eui.0025388b71b0c1d2"
	size = 64 << 20
)

// fakeKernel is the kernel, udev and nvme-cli, with one subsystem that has two namespaces.
type fakeKernel struct {
	t    *testing.T
	root string
	// has are the names of the subsystem's namespaces.
	has []string
	// away are the unreachable hosts.
	away []string
	// open are the open devices.
	open map[string]bool
	ran  []string
	// missing is a program that is not installed.
	missing string
}

func newKernel(t *testing.T) *fakeKernel {
	return &fakeKernel{t: t, root: t.TempDir(), has: []string{one, two}, open: map[string]bool{}}
}

func (k *fakeKernel) at(elements ...string) string {
	return filepath.Join(append([]string{k.root}, elements...)...)
}

func (k *fakeKernel) write(path, text string) {
	k.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text+"\n"), 0o600)); err != nil {
		k.t.Fatal(err)
	}
}

const subsystemDir = "sys/class/nvme-subsystem/nvme-subsys0"

func (k *fakeKernel) run(_ context.Context, args ...string) ([]byte, error) {
	k.ran = append(k.ran, strings.Join(args, " "))
	option := func(name string) string { return args[slices.Index(args, name)+1] }
	switch args[1] {
	case "connect":
		host := option("--traddr")
		if slices.Contains(k.away, host) {
			return nil, errors.New("nvme: exit status 1: Connection refused")
		}
		k.write(k.at(subsystemDir, "subsysnqn"), option("--nqn"))
		k.write(k.at(subsystemDir, "nvme"+host[len(host)-1:], "address"), fmt.Sprintf("traddr=%s,trsvcid=%s,src_addr=127.0.0.1", host, option("--trsvcid")))
		for i, name := range k.has {
			k.show(i, name)
		}
	case "disconnect":
		for i, name := range k.has {
			disk := fmt.Sprintf("nvme0n%d", i+1)
			for _, path := range []string{k.at("sys/class/block", disk), k.at("dev/disk/by-id", name), k.at("dev", disk)} {
				if err := os.RemoveAll(path); err != nil {
					k.t.Fatal(err)
				}
			}
		}
		return nil, os.RemoveAll(k.at(subsystemDir))
	}
	return nil, nil
}

func (k *fakeKernel) show(i int, name string) {
	disk := fmt.Sprintf("nvme0n%d", i+1)
	k.write(k.at(subsystemDir, disk, "x"), "")
	k.write(k.at("sys/class/block", disk, "wwid"), strings.TrimPrefix(name, namePrefix))
	k.write(k.at("sys/class/block", disk, "size"), fmt.Sprint(size/target.SectorBytes))
	k.write(k.at("dev", disk), "")
	k.write(k.at("dev/disk/by-id/x"), "")
	_ = os.Remove(k.at("dev/disk/by-id", name))
	if err := os.Symlink(k.at("dev", disk), k.at("dev/disk/by-id", name)); err != nil {
		k.t.Fatal(err)
	}
}

func (k *fakeKernel) opener(devices []string) (int, error) {
	for _, d := range devices {
		if k.open[d] {
			return 4711, nil
		}
	}
	return 0, nil
}

func (k *fakeKernel) ask(in connector.Request) (connector.Answer, error) {
	if in.Options == nil {
		in.Options = map[string]string{"nqn": nqn, "addresses": "127.0.0.1:4420,127.0.0.2:4420"}
	}
	devices := target.Devices{Sys: k.at("sys"), Dev: k.at("dev"), Opener: k.opener, Within: 200 * time.Millisecond}
	c := nvme{Devices: devices, run: k.run, installed: k.installed, state: k.at("run")}
	return c.handle(k.t.Context(), in)
}

func (k *fakeKernel) installed(program, debian string) error {
	if program == k.missing {
		return connector.Errorf(connector.CodeUnavailable, "%s: %s", program, debian)
	}
	return nil
}

func TestAPoolWithoutTheProgramThatItNeedsIsUnavailable(t *testing.T) {
	k := newKernel(t)
	if _, err := k.ask(connector.Request{Verb: connector.VerbInspect}); err != nil {
		t.Errorf("with it: %v", err)
	}
	k.missing = "nvme"
	if _, err := k.ask(connector.Request{Verb: connector.VerbInspect}); connector.CodeOf(err) != connector.CodeUnavailable || err.Error() != "nvme: nvme-cli" {
		t.Errorf("without it: %v", err)
	}
}

func (k *fakeKernel) connect(volume string) (connector.Answer, error) {
	return k.ask(connector.Request{Verb: connector.VerbConnect, OpID: "op", Volume: volume})
}

func (k *fakeKernel) disconnect(volume string) error {
	_, err := k.ask(connector.Request{Verb: connector.VerbDisconnect, OpID: "op", Volume: volume, Identity: strings.TrimPrefix(volume, namePrefix)})
	return err
}

func (k *fakeKernel) connected() bool {
	_, err := os.Stat(k.at(subsystemDir))
	return err == nil
}

// device is an open device of the fake.
type device struct {
	*os.File
	close func()
}

func (d device) Close() error { d.close(); return d.File.Close() }

// TestItKeepsToTheProtocol, by the vendors' test kit.
func TestItKeepsToTheProtocol(t *testing.T) {
	k := newKernel(t)
	real := func(path string) string { return strings.Replace(path, "/dev/", k.at("dev")+"/", 1) }
	failed := conformance.Run(t.Context(), conformance.Subject{
		Volumes: []string{one, two},
		Run: func(ctx context.Context, in connector.Request) (connector.Answer, error) {
			in.Options = map[string]string{"nqn": nqn, "addresses": "127.0.0.1:4420"}
			var out strings.Builder
			text := fmt.Sprintf(`{"protocol": %d, "verb": %q, "op_id": %q, "pool": "p", "options": {"nqn": %q, "addresses": "127.0.0.1:4420"}, "volume": %q, "identity": %q, "size_bytes": %d}`,
				in.Protocol, in.Verb, in.OpID, nqn, in.Volume, in.Identity, in.SizeBytes)
			err := connector.Serve(ctx, strings.NewReader(text), &out, func(_ context.Context, in connector.Request) (connector.Answer, error) { return k.ask(in) })
			if err != nil {
				return connector.Answer{}, err
			}
			return connector.ReadAnswer(in, []byte(strings.ReplaceAll(out.String(), k.at("dev"), "/dev")))
		},
		Look: func(path string) (pools.Device, error) {
			to, err := filepath.EvalSymlinks(real(path))
			if errors.Is(err, os.ErrNotExist) {
				return pools.Device{}, pools.ErrNoDevice
			}
			wwid, readErr := os.ReadFile(k.at("sys/class/block", filepath.Base(to), "wwid"))
			return pools.Device{SizeBytes: size, Identity: strings.TrimSpace(string(wwid))}, errors.Join(err, readErr)
		},
		Open: func(path string) (conformance.Device, error) {
			to, err := filepath.EvalSymlinks(real(path))
			if err != nil {
				return nil, err
			}
			f, err := os.OpenFile(to, os.O_RDWR, 0)
			k.open[to] = true
			return device{f, func() { delete(k.open, to) }}, err
		},
		Interrupted: []time.Duration{time.Hour},
		Report: func(f conformance.Finding) {
			if f.Err != nil {
				t.Errorf("%s: %v", f.Check, f.Err)
			}
		},
	})
	if failed > 0 || k.connected() {
		t.Errorf("%d checks have failed; connected: %v", failed, k.connected())
	}
}

func TestASessionThatWasThereIsNotEnded(t *testing.T) {
	k := newKernel(t)
	if _, err := k.run(t.Context(), "nvme", "connect", "--traddr", "127.0.0.1", "--trsvcid", "4420", "--nqn", nqn); err != nil {
		t.Fatal(err)
	}
	if _, err := k.connect(one); err != nil {
		t.Fatal(err)
	}
	if err := k.disconnect(one); err != nil || !k.connected() {
		t.Errorf("the session of somebody else: %v, connected %v", err, k.connected())
	}
}

// TestASessionIsNotEndedUnderADiskThatIsOpen, even if the disk was not connected by the connector.
func TestASessionIsNotEndedUnderADiskThatIsOpen(t *testing.T) {
	k := newKernel(t)
	if _, err := k.connect(one); err != nil {
		t.Fatal(err)
	}
	other := k.at("dev/nvme0n2")
	k.open[other] = true
	if err := k.disconnect(one); connector.CodeOf(err) != connector.CodeInUse || !k.connected() {
		t.Errorf("it is %v, connected %v", err, k.connected())
	}
	delete(k.open, other)
	if err := k.disconnect(one); err != nil || k.connected() {
		t.Errorf("asked again: %v, connected %v", err, k.connected())
	}
}

// TestWhatCannotBeConnectedLeavesNoSession, and does not end another volume's session.
func TestWhatCannotBeConnectedLeavesNoSession(t *testing.T) {
	k := newKernel(t)
	absent := "nvme-uuid.99999999-2222-4333-8444-555555555555"
	if _, err := k.connect(absent); connector.CodeOf(err) != connector.CodeNotFound || k.connected() {
		t.Errorf("it is %v, connected %v", err, k.connected())
	}
	if _, err := k.connect(one); err != nil {
		t.Fatal(err)
	}
	if _, err := k.connect(absent); connector.CodeOf(err) != connector.CodeNotFound || !k.connected() {
		t.Errorf("beside another volume it is %v, connected %v", err, k.connected())
	}
}

func TestOnePathIsEnoughAndNoneIsUnavailable(t *testing.T) {
	k := newKernel(t)
	k.away = []string{"127.0.0.1", "127.0.0.2"}
	if _, err := k.connect(one); connector.CodeOf(err) != connector.CodeUnavailable {
		t.Errorf("without a path: %v", err)
	}
	k.away = k.away[:1]
	if _, err := k.connect(one); err != nil {
		t.Errorf("with one path: %v", err)
	}
	k.away = nil
	k.ran = nil
	if _, err := k.connect(one); err != nil || !slices.Equal(k.ran, []string{"nvme connect --transport tcp --traddr 127.0.0.1 --trsvcid 4420 --nqn " + nqn}) {
		t.Errorf("the other path is made by %q, %v", k.ran, err)
	}
}

func TestANameOfAnotherDeviceIsNotTaken(t *testing.T) {
	k := newKernel(t)
	k.write(k.at("dev/sda"), "")
	if _, err := k.connect(two); err != nil {
		t.Fatal(err)
	}
	link := k.at("dev/disk/by-id", one)
	if err := errors.Join(os.Remove(link), os.Symlink(k.at("dev/sda"), link)); err != nil {
		t.Fatal(err)
	}
	if _, err := k.connect(one); connector.CodeOf(err) != connector.CodeFailed {
		t.Errorf("a name that is another device's: %v", err)
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, options := range []map[string]string{
		{},
		{"nqn": nqn},
		{"nqn": "--help", "addresses": "127.0.0.1:4420"},
		{"nqn": nqn, "addresses": "--help:4420"},
		{"nqn": nqn, "addresses": "127.0.0.1"},
		{"nqn": nqn, "addresses": "127.0.0.1:4420,"},
		{"nqn": nqn, "addresses": "127.0.0.1:0"},
		{"nqn": nqn, "addresses": "127.0.0.1:4420", "secret": "x"},
	} {
		k := newKernel(t)
		if _, err := k.ask(connector.Request{Verb: connector.VerbInspect, Options: options}); connector.CodeOf(err) != connector.CodeInvalid {
			t.Errorf("%v: %v", options, err)
		}
	}
	k := newKernel(t)
	if _, err := k.ask(connector.Request{Verb: connector.VerbCreate, OpID: "op", Volume: one, SizeBytes: size}); connector.CodeOf(err) != connector.CodeUnsupported {
		t.Errorf("a create is %v", err)
	}
}

var _ io.Closer = device{}
