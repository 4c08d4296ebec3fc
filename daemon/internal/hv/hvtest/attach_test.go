// SPDX-License-Identifier: Apache-2.0

package hvtest_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// withSecond is newGuest with a disk vdb on dst, live and in the definition.
func withSecond(t *testing.T) *hvtest.Fake {
	t.Helper()
	f := newGuest(t)
	spec := hv.DiskSpec{Target: "vdb", Bus: "virtio", Serial: "second", Image: dst}
	must(t,
		f.AttachDisk(t.Context(), domain, hv.Live, spec),
		f.AttachDisk(t.Context(), domain, hv.Config, spec),
	)
	return f
}

func hasLive(t *testing.T, f *hvtest.Fake) bool {
	t.Helper()
	d, err := f.Domain(t.Context(), domain)
	must(t, err)
	return d.LiveDisk("vdb") != nil
}

func TestGuestAnswersARequestToLetGoAsItWasTold(t *testing.T) {
	ask := func(f *hvtest.Fake) error { return f.DetachDisk(t.Context(), domain, hv.Live, "vdb") }
	for name, c := range map[string]struct {
		how   hvtest.Unplug
		then  func(*hvtest.Fake) error
		stays bool
	}{
		"at once":  {how: hvtest.UnplugAtOnce},
		"never":    {how: hvtest.UnplugWaits, stays: true},
		"later":    {how: hvtest.UnplugWaits, then: func(f *hvtest.Fake) error { return f.ReleaseDevice(domain, "vdb") }},
		"refusing": {how: hvtest.UnplugRefuses, stays: true},
		"at its reboot": {
			how: hvtest.UnplugWaits, then: func(f *hvtest.Fake) error { return f.Reboot(domain) },
		},
		"asked again": {how: hvtest.UnplugRefuses, then: func(f *hvtest.Fake) error {
			return errors.Join(f.SetUnplug(domain, hvtest.UnplugAtOnce), ask(f))
		}},
		"paused": {
			how: hvtest.UnplugAtOnce, stays: true,
			then: func(f *hvtest.Fake) error {
				return errors.Join(f.AttachDisk(t.Context(), domain, hv.Live,
					hv.DiskSpec{Target: "vdb", Bus: "virtio", Image: dst}), f.Suspend(t.Context(), domain), ask(f))
			},
		},
		"resumed": {
			how: hvtest.UnplugAtOnce,
			then: func(f *hvtest.Fake) error {
				return errors.Join(f.AttachDisk(t.Context(), domain, hv.Live,
					hv.DiskSpec{Target: "vdb", Bus: "virtio", Image: dst}),
					f.Suspend(t.Context(), domain), ask(f), f.Resume(t.Context(), domain))
			},
		},
	} {
		f := withSecond(t)
		must(t, f.SetUnplug(domain, c.how), ask(f))
		if c.then != nil {
			must(t, c.then(f))
		}
		if got := hasLive(t, f); got != c.stays {
			t.Errorf("%s: the disk is there: %v, want %v", name, got, c.stays)
		}
	}
}

func TestRefusalIsAnEventAndLeavesNothingPending(t *testing.T) {
	f := withSecond(t)
	events := f.Events(t.Context())
	<-events // connected
	must(t, f.SetUnplug(domain, hvtest.UnplugRefuses), f.DetachDisk(t.Context(), domain, hv.Live, "vdb"))
	want := hv.Event{Kind: hv.EventDeviceRemoved, DomainID: domain, Detail: "failed"}
	if got := <-events; got != want {
		t.Errorf("event = %+v, want %+v", got, want)
	}
	if f.Leaving(domain, "vdb") {
		t.Error("the request is still open")
	}
	if err := f.ReleaseDevice(domain, "vdb"); err == nil {
		t.Error("a guest let go of a disk that it was not asked for")
	}
}

func TestEndOfAProcessTakesLiveDisksAndRequestsAlong(t *testing.T) {
	f := withSecond(t)
	must(t,
		f.SetUnplug(domain, hvtest.UnplugWaits),
		f.DetachDisk(t.Context(), domain, hv.Live, "vdb"),
		f.Crash(domain),
		f.DetachDisk(t.Context(), domain, hv.Live, "vdb"),
		f.Start(domain),
	)
	if !hasLive(t, f) || f.Leaving(domain, "vdb") {
		t.Error("the domain did not start with the disk of its definition, and no request")
	}
	must(t,
		f.DetachDisk(t.Context(), domain, hv.Config, "vdb"),
		f.Crash(domain),
		f.Start(domain),
	)
	if hasLive(t, f) {
		t.Error("the domain started with a disk that its definition has not")
	}
	f.AssertNoWriteLost(t)
	f.AssertClean(t)
}

func TestWritesToAttachedDisksAreHeldToAccount(t *testing.T) {
	f := withSecond(t)
	must(t, f.GuestWrite(domain, "vdb", 3, 33), f.Crash(domain))
	f.AssertNoWriteLost(t)
	must(t, f.WriteBlock(dst.Path, 3, 34))
	probe := &recorder{TB: t}
	f.AssertNoWriteLost(probe)
	if !probe.failed {
		t.Error("AssertNoWriteLost did not notice a lost write")
	}
	// The later content of a detached volume does not concern this guest.
	must(t, f.DetachDisk(t.Context(), domain, hv.Config, "vdb"))
	f.AssertNoWriteLost(t)
}

func TestAttachFaultsHappenAtTheirCall(t *testing.T) {
	f := newGuest(t)
	spec := hv.DiskSpec{Target: "vdb", Bus: "virtio", Image: dst}
	for call, do := range map[string]func() error{
		"AttachDisk":     func() error { return f.AttachDisk(t.Context(), domain, hv.Live, spec) },
		"DetachDisk":     func() error { return f.DetachDisk(t.Context(), domain, hv.Live, "vda") },
		"DiskDefinition": func() error { _, err := f.DiskDefinition(t.Context(), domain, hv.Live, "vda"); return err },
	} {
		f.Inject(hvtest.Fault{Call: call})
		if err := do(); !errors.Is(err, hv.ErrUnavailable) {
			t.Errorf("%s = %v, want the fault", call, err)
		}
	}
	f.Inject(hvtest.Fault{Call: "AttachDisk", After: true})
	if err := f.AttachDisk(t.Context(), domain, hv.Live, spec); !errors.Is(err, hv.ErrUnavailable) || !hasLive(t, f) {
		t.Errorf("AttachDisk = %v, want an effect and no answer", err)
	}
}

func TestDefinitionPutsADiskBackExactly(t *testing.T) {
	f := withSecond(t)
	must(t, f.Destroy(domain))
	before, err := f.Domain(t.Context(), domain)
	must(t, err)
	definition, err := f.DiskDefinition(t.Context(), domain, hv.Config, "vdb")
	must(t, err)
	must(t,
		f.DetachDisk(t.Context(), domain, hv.Config, "vdb"),
		f.AttachDisk(t.Context(), domain, hv.Config, hv.DiskSpec{Target: "vdb", Definition: definition}),
	)
	after, err := f.Domain(t.Context(), domain)
	must(t, err)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the definition changed (-before +after):\n%s", diff)
	}
}

func TestAJobOnADiskThatTheGuestWasAskedForIsAViolation(t *testing.T) {
	f := withSecond(t)
	must(t,
		f.CreateImage("/elsewhere", hvtest.Raw, size),
		f.Suspend(t.Context(), domain),
		f.DetachDisk(t.Context(), domain, hv.Live, "vdb"),
		f.BlockCopy(t.Context(), domain, "vdb", hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/elsewhere"},
			hv.BlockCopyOptions{}),
		f.Resume(t.Context(), domain),
	)
	probe := &recorder{TB: t}
	f.AssertClean(probe)
	if hasLive(t, f) || !probe.failed {
		t.Error("not noticed")
	}
}

func TestNothingIsExpectedOfALiveDiskThatIsGone(t *testing.T) {
	f := newGuest(t)
	spec := hv.DiskSpec{Target: "vdb", Bus: "virtio", Image: dst}
	must(t,
		f.AttachDisk(t.Context(), domain, hv.Live, spec),
		f.GuestWrite(domain, "vdb", 3, 33),
		f.DetachDisk(t.Context(), domain, hv.Live, "vdb"),
	)
	f.AssertNoWriteLost(t)
	must(t, f.WriteBlock(dst.Path, 3, 0), f.AttachDisk(t.Context(), domain, hv.Live, spec))
	f.AssertNoWriteLost(t)
}
