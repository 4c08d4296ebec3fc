// SPDX-License-Identifier: Apache-2.0

package pools_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/connectortest"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

const dbPath = connectortest.Directory + "/db"

// newTarget returns a host with the pool "san", of a target with the volumes db and web.
func newTarget(t *testing.T, flaw connectortest.Flaw) (*pools.Host, connectortest.Fake) {
	t.Helper()
	f := connectortest.Fake{Dir: t.TempDir(), Flaw: flaw, Target: true}
	for _, name := range []string{"db", "web"} {
		if err := f.AddVolume(name, "FAKE-"+name, size); err != nil {
			t.Fatal(err)
		}
	}
	return &pools.Host{Hypervisor: hvtest.New(), Connectors: map[string]string{"san": "fake"}, Run: f.Run, Look: f.Look}, f
}

func TestAVolumeOfATargetHasItsDeviceWhileItIsConnected(t *testing.T) {
	h, f := newTarget(t, "")
	ctx := forOp(t, "op-1")
	if p := pool(t, h, "san"); !p.Active || !p.NoCreate {
		t.Errorf("the pool is %+v", p)
	}
	if is, err := h.Connectable(ctx, dbPath); !is || err != nil {
		t.Errorf("Connectable = %v, %v", is, err)
	}
	if at, err := h.VolumeAt(ctx, dbPath); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("before it is connected it is in pool %q, %v", at, err)
	}
	if _, err := h.LookupVolume(ctx, "san", "db"); !errors.Is(err, hv.ErrNotConnected) || !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("before it is connected LookupVolume says %v", err)
	}
	for range 2 {
		if err := h.ConnectDevice(ctx, dbPath); err != nil {
			t.Fatal(err)
		}
	}
	if at, err := h.VolumeAt(ctx, dbPath); at != "san" || err != nil {
		t.Errorf("connected it is in pool %q, %v", at, err)
	}
	if err := h.ConnectDevice(ctx, connectortest.Directory+"/web"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.DisconnectDevice(ctx, dbPath); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Look(connectortest.Directory + "/web"); err != nil {
		t.Errorf("the other volume has lost its device: %v", err)
	}
	if err := h.DisconnectDevice(ctx, connectortest.Directory+"/web"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Look(dbPath); !errors.Is(err, pools.ErrNoDevice) {
		t.Errorf("the session is there after the last volume: %v", err)
	}
}

func TestOtherPathsAreNotConnected(t *testing.T) {
	h, _ := newTarget(t, "")
	h.Run = func(_ context.Context, _ string, in connector.Request) (connector.Answer, error) {
		if in.Volume != "" {
			t.Errorf("the connector is asked to %s %q", in.Verb, in.Volume)
		}
		return connector.Answer{Pool: &connector.Pool{Directory: connectortest.Directory, GranularityBytes: 512, Verbs: []string{"inspect", "connect", "disconnect"}}}, nil
	}
	for _, path := range []string{"/dev/other/db", "/srv/db", connectortest.Directory + "/--force", connectortest.Directory + "/../fake/db"} {
		if is, err := h.Connectable(t.Context(), path); is || err != nil {
			t.Errorf("Connectable(%s) = %v, %v", path, is, err)
		}
		if err := errors.Join(h.ConnectDevice(t.Context(), path), h.DisconnectDevice(t.Context(), path)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestADeviceThatIsNotWhatTheConnectorSaysIsRefused: a volume with another identity is never
// accepted.
func TestADeviceThatIsNotWhatTheConnectorSaysIsRefused(t *testing.T) {
	for _, flaw := range []connectortest.Flaw{connectortest.LiesOfIdentity, connectortest.LiesOfSize, connectortest.LiesOfPath} {
		h, _ := newTarget(t, flaw)
		if err := h.ConnectDevice(forOp(t, "op-1"), dbPath); api.CodeOf(err) != api.CodeChainChanged {
			t.Errorf("%s: %v", flaw, err)
		}
	}
	h, f := newTarget(t, "")
	if err := h.ConnectDevice(forOp(t, "op-1"), dbPath); err != nil {
		t.Fatal(err)
	}
	h.Look = func(path string) (pools.Device, error) {
		d, err := f.Look(path)
		d.Identity = "another"
		return d, err
	}
	if err := h.DisconnectDevice(forOp(t, "op-2"), dbPath); api.CodeOf(err) != api.CodeChainChanged {
		t.Errorf("the disconnect of what is another device: %v", err)
	}
}

func TestWhatNoTargetHasIsNotFoundAndATargetThatIsAwayIsNoAbsence(t *testing.T) {
	h, f := newTarget(t, "")
	none := connectortest.Directory + "/none"
	if err := h.ConnectDevice(forOp(t, "op-1"), none); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("what no target has: %v", err)
	}
	h.Run = func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
		if in.Verb == connector.VerbConnect {
			return connector.Answer{}, connector.Errorf(connector.CodeUnavailable, "the target is away")
		}
		return f.Run(ctx, pool, in)
	}
	if err := h.ConnectDevice(forOp(t, "op-1"), none); errors.Is(err, hv.ErrNotFound) || api.CodeOf(err) != api.CodeHypervisorUnavailable {
		t.Errorf("a target that is away: %v", err)
	}
}

func TestAPoolThatOnlyConnectsMakesNoVolumes(t *testing.T) {
	h, _ := newTarget(t, "")
	if _, err := h.RoundedBytes(t.Context(), "san", size); api.CodeOf(err) != api.CodeInvalidArgument {
		t.Errorf("it rounds: %v", err)
	}
	if _, err := h.CreateVolume(forOp(t, "op-1"), "san", "new", "raw", size, nil); err == nil {
		t.Error("it makes a volume")
	}
}

func TestAVolumeOfATargetIsNotDeleted(t *testing.T) {
	h, _ := newTarget(t, "")
	ctx := forOp(t, "op-1")
	refused := func() {
		t.Helper()
		if err := h.DeleteVolume(ctx, "san", "db"); api.CodeOf(err) != api.CodeInvalidArgument || !strings.Contains(err.Error(), "volume forget") {
			t.Errorf("its deletion is %v, want a refusal", err)
		}
	}
	refused()
	if err := h.ConnectDevice(ctx, dbPath); err != nil {
		t.Fatal(err)
	}
	refused()
}
