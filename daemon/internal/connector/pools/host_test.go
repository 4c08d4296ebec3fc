// SPDX-License-Identifier: Apache-2.0

package pools_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/connectortest"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

const size = 4 * connectortest.GranularityBytes

// newHost returns a host with a libvirt pool, "files", and a connector's pool, "fast".
func newHost(t *testing.T, flaw connectortest.Flaw) (*pools.Host, connectortest.Fake) {
	t.Helper()
	libvirt := hvtest.New()
	libvirt.AddPool(hv.PoolInfo{Name: "files", Type: "dir", Path: "/files", Active: true})
	f := connectortest.Fake{Dir: t.TempDir(), Flaw: flaw}
	return &pools.Host{Hypervisor: libvirt, Connectors: map[string]string{"fast": "fake"}, Run: f.Run, Look: f.Look}, f
}

func forOp(t *testing.T, id string) context.Context { return hv.WithOp(t.Context(), id) }

func pool(t *testing.T, h *pools.Host, name string) hv.PoolInfo {
	t.Helper()
	list, err := h.Pools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no pool %s among %+v", name, list)
	return hv.PoolInfo{}
}

func TestAPoolOfAConnectorIsAPoolAsAnyOther(t *testing.T) {
	h, _ := newHost(t, "")
	ctx := forOp(t, "op-1")
	if p := pool(t, h, "fast"); !p.Active || p.Type != hv.ConnectorPool || p.Path != connectortest.Directory || !p.Extends || p.NoCreate || p.FreeBytes <= 0 {
		t.Errorf("the pool is %+v", p)
	}
	if p := pool(t, h, "files"); p.Type != "dir" {
		t.Errorf("libvirt's pool is %+v", p)
	}
	if n, err := h.RoundedBytes(ctx, "fast", size-1); n != size || err != nil {
		t.Errorf("it rounds to %d, %v", n, err)
	}
	if _, err := h.LookupVolume(ctx, "fast", "db"); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("a volume that is not there: %v", err)
	}
	made, err := h.CreateVolume(ctx, "fast", "db", "raw", size, nil)
	if err != nil || made.Path != connectortest.Directory+"/db" || made.CapacityBytes != size || !made.Block || made.OpID != "op-1" {
		t.Fatalf("made %+v, %v", made, err)
	}
	if _, err := h.CreateVolume(forOp(t, "op-2"), "fast", "db", "raw", size, nil); !errors.Is(err, hv.ErrExists) {
		t.Errorf("a name that is taken: %v", err)
	}
	if again, err := h.CreateVolume(ctx, "fast", "db", "raw", size, nil); err != nil || *again != *made {
		t.Errorf("the same op once more: %+v, %v", again, err)
	}
	if at, err := h.VolumeAt(ctx, made.Path); at != "fast" || err != nil {
		t.Errorf("it is in pool %q, %v", at, err)
	}
	for range 2 {
		if err := h.ExtendVolume(ctx, "fast", "db", 2*size); err != nil {
			t.Error(err)
		}
	}
	if v, err := h.LookupVolume(ctx, "fast", "db"); err != nil || v.CapacityBytes != 2*size {
		t.Errorf("it is %+v, %v", v, err)
	}
	for range 2 {
		if err := h.DeleteVolume(ctx, "fast", "db"); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.VolumeAt(ctx, made.Path); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("it is gone, and in a pool: %v", err)
	}
	if _, err := h.CreateVolume(ctx, "files", "db", "raw", size, nil); err != nil {
		t.Errorf("in libvirt's pool: %v", err)
	}
	if err := h.ExtendVolume(ctx, "files", "db", 2*size); !errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("in libvirt's pool: %v", err)
	}
}

// TestWhatTheKernelDoesNotHaveIsNotBelieved, and nothing uses it.
func TestWhatTheKernelDoesNotHaveIsNotBelieved(t *testing.T) {
	for _, flaw := range []connectortest.Flaw{
		connectortest.WrongSize, connectortest.LiesOfSize, connectortest.LiesOfIdentity, connectortest.LiesOfPath, connectortest.ForgetsOp, connectortest.TakesOver,
	} {
		t.Run(string(flaw), func(t *testing.T) {
			h, f := newHost(t, flaw)
			if flaw == connectortest.TakesOver {
				honest := connectortest.Fake{Dir: f.Dir}
				if _, err := honest.Run(t.Context(), "fast", connector.Request{Verb: connector.VerbCreate, OpID: "another", Volume: "db", SizeBytes: size}); err != nil {
					t.Fatal(err)
				}
			}
			if v, err := h.CreateVolume(forOp(t, "op-1"), "fast", "db", "raw", size, nil); api.CodeOf(err) != api.CodeChainChanged {
				t.Errorf("made %+v, %v", v, err)
			}
		})
	}
	t.Run(string(connectortest.LeavesDevice), func(t *testing.T) {
		h, _ := newHost(t, connectortest.LeavesDevice)
		if _, err := h.CreateVolume(forOp(t, "op-1"), "fast", "db", "raw", size, nil); err != nil {
			t.Fatal(err)
		}
		if err := h.DeleteVolume(t.Context(), "fast", "db"); api.CodeOf(err) != api.CodeChainChanged {
			t.Errorf("what is there is deleted: %v", err)
		}
	})
}

// TestTheDeviceThatWasLookedUpIsDeletedAndNoOther: another one gets its name in between.
func TestTheDeviceThatWasLookedUpIsDeletedAndNoOther(t *testing.T) {
	h, f := newHost(t, "")
	ctx := forOp(t, "op-1")
	if _, err := h.CreateVolume(ctx, "fast", "db", "raw", size, nil); err != nil {
		t.Fatal(err)
	}
	replaced := false
	h.Run = func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
		if in.Verb == connector.VerbDelete && !replaced {
			replaced = true
			if _, err := f.Run(ctx, pool, in); err != nil {
				t.Error(err)
			}
			if _, err := f.Run(ctx, pool, connector.Request{Verb: connector.VerbCreate, OpID: "another", Volume: in.Volume, SizeBytes: size}); err != nil {
				t.Error(err)
			}
		}
		return f.Run(ctx, pool, in)
	}
	if err := h.DeleteVolume(ctx, "fast", "db"); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("another device is deleted: %v", err)
	}
	if v, err := h.LookupVolume(ctx, "fast", "db"); err != nil || v.OpID != "another" {
		t.Errorf("it is %+v, %v", v, err)
	}
}

// TestAConnectorThatFailsAtAVerbIsNoAbsence, and no success: a lookup of a volume there returns
// that it is unknown.
func TestAConnectorThatFailsAtAVerbIsNoAbsence(t *testing.T) {
	broken := &connector.BrokenError{Verb: "x", Err: errors.New("exit status 3")}
	for _, verb := range connector.Verbs {
		for _, why := range []error{broken, connector.Errorf(connector.CodeUnavailable, "the array is away"), connector.Errorf(connector.CodeFailed, "no")} {
			h, f := newHost(t, "")
			ctx := forOp(t, "op-1")
			if _, err := h.CreateVolume(ctx, "fast", "db", "raw", size, nil); err != nil {
				t.Fatal(err)
			}
			h.Run = func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
				if in.Verb == verb {
					return connector.Answer{}, why
				}
				return f.Run(ctx, pool, in)
			}
			_, createErr := h.CreateVolume(ctx, "fast", "db2", "raw", size, nil)
			_, lookErr := h.LookupVolume(ctx, "fast", "db")
			calls := map[string]error{
				connector.VerbInspect: lookErr, connector.VerbCreate: createErr,
				connector.VerbExtend: h.ExtendVolume(ctx, "fast", "db", 2*size), connector.VerbDelete: h.DeleteVolume(ctx, "fast", "db"),
			}
			if calls[verb] == nil && slices.Contains([]string{connector.VerbConnect, connector.VerbDisconnect, connector.VerbCopy}, verb) {
				continue // this pool has none of them
			}
			if err := calls[verb]; api.CodeOf(err) != api.CodeHypervisorUnavailable || errors.Is(err, hv.ErrNotFound) {
				t.Errorf("%s fails by %v: %v", verb, why, err)
			}
			if verb == connector.VerbInspect {
				for call, err := range calls {
					if err == nil {
						t.Errorf("%s is done by a connector that says nothing", call)
					}
				}
			}
		}
	}
}

func TestAPoolThatIsNotFoundIsNoAbsenceOfAVolume(t *testing.T) {
	h, _ := newHost(t, "")
	h.Run = func(context.Context, string, connector.Request) (connector.Answer, error) {
		return connector.Answer{}, connector.Errorf(connector.CodeNotFound, "no such array")
	}
	if _, err := h.LookupVolume(t.Context(), "fast", "db"); err == nil || errors.Is(err, hv.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestAnErrorOfAConnectorIsOneOfTheHypervisor(t *testing.T) {
	for code, want := range map[string]error{
		connector.CodeNotFound: hv.ErrNotFound, connector.CodeExists: hv.ErrExists, connector.CodeInUse: hv.ErrInUse,
		connector.CodeBusy: hv.ErrBusy, connector.CodeUnsupported: hv.ErrUnsupported,
	} {
		if err := deletion(t, code); !errors.Is(err, want) || !strings.Contains(err.Error(), "connector fake") {
			t.Errorf("%s is %v, want %v", code, err, want)
		}
	}
	for code, want := range map[string]api.Code{
		connector.CodeInvalid: api.CodeInvalidArgument, connector.CodeChanged: api.CodeConflict, connector.CodeNoSpace: api.CodeNoSpace,
		connector.CodeUnavailable: api.CodeHypervisorUnavailable, connector.CodeProtocol: api.CodeHypervisorUnavailable, connector.CodeFailed: api.CodeHypervisorUnavailable,
	} {
		if err := deletion(t, code); api.CodeOf(err) != want {
			t.Errorf("%s is %v, want %s", code, err, want)
		}
	}
}

// deletion returns the error of a delete that a connector refuses with a code.
func deletion(t *testing.T, code string) error {
	h, f := newHost(t, "")
	if _, err := h.CreateVolume(forOp(t, "op-1"), "fast", "db", "raw", size, nil); err != nil {
		t.Fatal(err)
	}
	h.Run = func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
		if in.Verb == connector.VerbDelete {
			return connector.Answer{}, connector.Errorf(code, "no")
		}
		return f.Run(ctx, pool, in)
	}
	return h.DeleteVolume(t.Context(), "fast", "db")
}

// TestAConnectorThatHangsHoldsUpNoList of the pools for long, and gets no second request before it
// has answered.
func TestAConnectorThatHangsHoldsUpNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := newHost(t, "")
		var asked atomic.Int32
		answers := make(chan struct{})
		h.Run = func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
			asked.Add(1)
			<-answers
			return f.Run(ctx, pool, in)
		}
		for range 3 {
			began := time.Now()
			p := pool(t, h, "fast")
			if took := time.Since(began); took > 3*time.Second || p.Active || !strings.Contains(p.Problem, "connector fake: it has not said for") {
				t.Errorf("after %s the pool is %+v", took, p)
			}
			if q := pool(t, h, "files"); !q.Active {
				t.Errorf("libvirt's pool is %+v", q)
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
		close(answers)
		synctest.Wait()
		<-time.After(time.Minute) // its answer is old by then
		if p := pool(t, h, "fast"); !p.Active || asked.Load() != 2 {
			t.Errorf("it answers, and the pool is %+v, asked %d times", p, asked.Load())
		}
	})
}

// TestAConnectorThatIsSlowHasItsPool, as on a busy host: the last result is valid during the next
// inspection, also after a change, and no longer.
func TestAConnectorThatIsSlowHasItsPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := newHost(t, "")
		var broken atomic.Bool
		h.Run = func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
			<-time.After(10 * time.Second)
			if broken.Load() {
				return connector.Answer{}, connector.Errorf(connector.CodeUnavailable, "the array is away")
			}
			return f.Run(ctx, pool, in)
		}
		if p := pool(t, h, "fast"); p.Active {
			t.Errorf("nobody has seen the pool, and it is %+v", p)
		}
		<-time.After(10 * time.Second)
		for i := range 20 {
			if p := pool(t, h, "fast"); !p.Active || p.Problem != "" {
				t.Errorf("look %d: the pool is %+v", i, p)
			}
			if i == 10 {
				if _, err := h.CreateVolume(forOp(t, "op-1"), "fast", "db", "raw", size, nil); err != nil {
					t.Error(err)
				}
			}
			<-time.After(time.Second)
		}
		broken.Store(true)
		<-time.After(20 * time.Second)
		pool(t, h, "fast") // starts an inspection
		<-time.After(10 * time.Second)
		if p := pool(t, h, "fast"); p.Active {
			t.Errorf("the array is away, and the pool is %+v", p)
		}
		<-time.After(10 * time.Second) // until the end of the inspection that the list started
	})
}

// TestAPoolThatIsKnownIsNotInspectedForEachVolume: each run of a program takes time.
func TestAPoolThatIsKnownIsNotInspectedForEachVolume(t *testing.T) {
	h, f := newHost(t, "")
	var ran []string
	h.Run = func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
		ran = append(ran, strings.TrimSpace(in.Verb+" "+in.Volume))
		return f.Run(ctx, pool, in)
	}
	ctx := forOp(t, "op-1")
	if _, err := h.CreateVolume(ctx, "fast", "db", "raw", size, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		do   func() error
		want string
	}{
		{"look up", func() error { _, err := h.LookupVolume(ctx, "fast", "db"); return err }, "inspect db"},
		{"extend", func() error { return h.ExtendVolume(ctx, "fast", "db", 2*size) }, "inspect db, extend db, inspect db"},
		{"delete", func() error { return h.DeleteVolume(ctx, "fast", "db") }, "inspect db, delete db, inspect db"},
	} {
		pool(t, h, "fast")
		ran = nil
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if got := strings.Join(ran, ", "); got != c.want {
			t.Errorf("%s runs %s, want %s", c.what, got, c.want)
		}
	}
}

// TestAnAbsenceIsThatOfAPoolThatIsThere at that moment, and not only when it was listed.
func TestAnAbsenceIsThatOfAPoolThatIsThere(t *testing.T) {
	h, _ := newHost(t, "")
	if p := pool(t, h, "fast"); !p.Active {
		t.Fatalf("the pool is %+v", p)
	}
	h.Run = func(_ context.Context, _ string, in connector.Request) (connector.Answer, error) {
		if in.Volume != "" {
			return connector.Answer{}, connector.Errorf(connector.CodeNotFound, "no such volume")
		}
		return connector.Answer{}, connector.Errorf(connector.CodeUnavailable, "the array is away")
	}
	if _, err := h.LookupVolume(t.Context(), "fast", "db"); api.CodeOf(err) != api.CodeHypervisorUnavailable || errors.Is(err, hv.ErrNotFound) {
		t.Errorf("look up: %v", err)
	}
	if err := h.DeleteVolume(forOp(t, "op-1"), "fast", "db"); api.CodeOf(err) != api.CodeHypervisorUnavailable {
		t.Errorf("delete: %v", err)
	}
}

// TestARequestWhoseTimeIsOverIsToldSo: the volume is then neither known to exist nor known to be
// absent.
func TestARequestWhoseTimeIsOverIsToldSo(t *testing.T) {
	h, _ := newHost(t, "")
	h.Run = func(ctx context.Context, _ string, in connector.Request) (connector.Answer, error) {
		<-ctx.Done()
		return connector.Answer{}, &connector.BrokenError{Verb: in.Verb, Err: context.Cause(ctx)}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := h.LookupVolume(ctx, "fast", "db")
	if api.CodeOf(err) != api.CodeHypervisorUnavailable || errors.Is(err, hv.ErrNotFound) || !strings.Contains(err.Error(), "try again") {
		t.Errorf("got %v", err)
	}
}

func TestAPoolThatLibvirtHasTooIsNobodys(t *testing.T) {
	h, _ := newHost(t, "")
	h.Connectors["files"] = "fake"
	if p := pool(t, h, "files"); p.Active || !strings.Contains(p.Problem, "another name") {
		t.Errorf("the pool is %+v", p)
	}
}

func TestWhatCannotBeTrueOfAPoolIsNotBelieved(t *testing.T) {
	good := connector.Pool{Directory: "/dev/vg", CapacityBytes: 2, FreeBytes: 1, GranularityBytes: 512, Verbs: connector.Verbs}
	if err := pools.CheckPool(good); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(p *connector.Pool){
		"a directory of files":               func(p *connector.Pool) { p.Directory = "/etc" },
		"a directory elsewhere":              func(p *connector.Pool) { p.Directory = "/dev/../etc" },
		"all devices":                        func(p *connector.Pool) { p.Directory = "/dev/" },
		"no granularity":                     func(p *connector.Pool) { p.GranularityBytes = 0 },
		"half a sector":                      func(p *connector.Pool) { p.GranularityBytes = 100 },
		"more free than there is":            func(p *connector.Pool) { p.FreeBytes = 3 },
		"less than nothing":                  func(p *connector.Pool) { p.FreeBytes = -1 },
		"a pool that deletes none":           func(p *connector.Pool) { p.Verbs = []string{connector.VerbInspect, connector.VerbCreate} },
		"a pool that only makes connections": func(p *connector.Pool) { p.Verbs = []string{connector.VerbInspect, connector.VerbConnect} },
		"a pool that only ends connections":  func(p *connector.Pool) { p.Verbs = []string{connector.VerbInspect, connector.VerbDisconnect} },
		"a pool that does nothing":           func(p *connector.Pool) { p.Verbs = []string{connector.VerbInspect} },
		"a pool that says nothing":           func(p *connector.Pool) { p.Verbs = []string{connector.VerbConnect, connector.VerbDisconnect} },
	} {
		p := good
		if change(&p); pools.CheckPool(p) == nil {
			t.Errorf("%s is believed", what)
		}
	}
}

func TestNoVolumeWhoseNameIsAPathOrAnOptionIsAskedFor(t *testing.T) {
	h, _ := newHost(t, "")
	h.Run = func(_ context.Context, _ string, in connector.Request) (connector.Answer, error) {
		t.Errorf("the connector is asked for %q", in.Volume)
		return connector.Answer{}, errors.New("asked")
	}
	for _, name := range []string{"../db", "--force", "a b", "", "a\nb"} {
		if _, err := h.CreateVolume(forOp(t, "op-1"), "fast", name, "raw", size, nil); api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("create %q: %v", name, err)
		}
		if _, err := h.LookupVolume(t.Context(), "fast", name); !errors.Is(err, hv.ErrNotFound) {
			t.Errorf("look up %q: %v", name, err)
		}
	}
}
