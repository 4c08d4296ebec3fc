// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

func attaching(call store.Call, volume string, in api.VolumeAttach) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error { return second(s.Shelf.Attach(t.Context(), call, volume, in)) }
}

// detached returns a setup function that detaches a volume from web, which is offloaded.
func detached(volume string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(s.Shelf.Detach(t.Context(), nobody, volume, api.VolumeDetach{Instance: "web"}))(t)
	}
}

// A shelved instance gets another root volume and is unshelved with it, although the stored
// definition has the first one.
func TestARootVolumeIsReplacedWhileNoHostHasItsInstance(t *testing.T) {
	s := newCluster(t)
	offloaded(web)(t, s)
	was := must(s.Shelf.Detach(t.Context(), nobody, "root", api.VolumeDetach{Instance: "web"}))(t)
	if was.ID != rootAt || was.State != api.AttachmentAttached || was.Host != "" {
		t.Errorf("detached %+v", was)
	}
	wantVolume(t, s, root, api.VolumeAvailable, 0)
	empty := must(s.Instances.Get(t.Context(), web, everyone))(t).BlockDeviceMappings[1]
	if empty.Device != "vda" || empty.VolumeID != nil || empty.Slot == nil || *empty.Slot != storetest.RootSlot {
		t.Errorf("root slot = %+v", empty)
	}
	wantCode(t, transitioning(nobody, web, claim())(t, s), api.CodeRootVolumeMissing, "without a root device volume")
	got := must(s.Shelf.Attach(t.Context(), nobody, "data", api.VolumeAttach{Instance: "web", Root: true}))(t)
	if got.Device != "vda" || got.State != api.AttachmentAttached || *got.BootIndex != 0 || got.Mode != api.ModeRW || got.Host != "" {
		t.Errorf("attached %+v", got)
	}
	if v := must(s.Volumes.Get(t.Context(), "data", everyone))(t); !v.Bootable || v.Status != api.VolumeInUse {
		t.Errorf("root volume = %+v", v)
	}
	back := must(s.Shelf.Transition(t.Context(), nobody, web, claim()))(t)
	if len(back.Attachments) != 1 || back.Attachments[0].VolumeID != data || back.Definition.Disks["vda"] != storetest.RootSlot {
		t.Errorf("claimed %+v", back)
	}
}

// The root slot was empty before the instance was shelved, so the stored definition lacks it; the
// slot has its own definition.
func TestAClaimHasTheSlotThatWasEmptyWhenTheInstanceWasShelved(t *testing.T) {
	s := newCluster(t)
	in := toShelf()
	in.Definition.Disks = nil
	inTurn(stoppedWithoutRoot, movedTo(web, in, offload()))(t, s)
	must(s.Shelf.Attach(t.Context(), nobody, "data", api.VolumeAttach{Instance: "web", Root: true}))(t)
	got := must(s.Shelf.Transition(t.Context(), nobody, web, claim()))(t)
	if diff := cmp.Diff(map[string]api.SlotDefinition{"vda": storetest.RootSlot}, got.Definition.Disks); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
}

func TestADataVolumeOfAnInstanceThatNoHostHasGetsTheNextFreeDevice(t *testing.T) {
	s := newCluster(t)
	offloaded(web)(t, s)
	for _, tc := range []struct{ volume, asked, got string }{{"data", "", "vdb"}, {"disk", "vdd", "vdd"}, {"local", "", "vdc"}} {
		a := must(s.Shelf.Attach(t.Context(), nobody, tc.volume, api.VolumeAttach{Instance: "web", Device: tc.asked, Mode: api.ModeRO}))(t)
		if a.Device != tc.got || a.BootIndex != nil || a.Mode != api.ModeRO {
			t.Errorf("attached %+v, want %s", a, tc.got)
		}
	}
	detached("data")(t, s)
	if slots := must(s.Instances.Get(t.Context(), web, everyone))(t).BlockDeviceMappings; len(slots) != 4 {
		t.Errorf("slots = %+v, want sda, vda, vdc and vdd", slots)
	}
}

func TestARepeatedRequestForAShelvedVolumeIsAnsweredAsThen(t *testing.T) {
	s := newCluster(t)
	offloaded(web)(t, s)
	keyed, in := store.Call{Who: "test", Key: "k"}, api.VolumeAttach{Instance: "web"}
	a := must(s.Shelf.Attach(t.Context(), keyed, "data", in))(t)
	movedTo(web, claim(), complete())(t, s)
	if again := must(s.Shelf.Attach(t.Context(), keyed, "data", in))(t); again != a {
		t.Errorf("again: %+v, first %+v", again, a)
	}
	in.Mode = api.ModeRO
	wantCode(t, attaching(keyed, "data", in)(t, s), api.CodeIdempotencyMismatch, "another request")
	if err := attaching(nobody, "disk", api.VolumeAttach{Instance: "web"})(t, s); !errors.Is(err, ErrOnHost) {
		t.Errorf("attach where a host has the instance: %v", err)
	}
}

func TestTheHostThatHadAnInstanceLastChangesItsVolumesAndNoOtherDoes(t *testing.T) {
	s := newCluster(t)
	offloaded(web)(t, s)
	must(s.Shelf.Attach(t.Context(), as(hostA), "data", api.VolumeAttach{Instance: "web"}))(t)
	err := unchanged(t, s, func() error {
		return second(s.Shelf.Detach(t.Context(), as(hostB), "data", api.VolumeDetach{Instance: "web"}))
	})
	wantCode(t, err, api.CodeNotYourHost, "instance web")
	a := must(s.Attachments.All(t.Context(), "data", "", everyone))(t)[0]
	err = unchanged(t, s, func() error { return second(s.Shelf.DeleteAttachment(t.Context(), as(hostB), a.ID)) })
	wantCode(t, err, api.CodeNotYourHost, "instance web")
	must(s.Shelf.DeleteAttachment(t.Context(), as(hostA), a.ID))(t)
	wantVolume(t, s, data, api.VolumeAvailable, 0)
}

// The state of an instance's last host does not matter for its volumes.
func TestVolumesOfAnInstanceOfAFencedHostComeAndGoWhileNoHostHasIt(t *testing.T) {
	s := newCluster(t)
	inTurn(offloaded(web), fenceA, detached("root"))(t, s)
	must(s.Shelf.Attach(t.Context(), nobody, "disk", api.VolumeAttach{Instance: "web"}))(t)
}

func TestShelvedAttachesAndDetachesThatAreRefused(t *testing.T) {
	to := func(change func(*api.VolumeAttach)) func(*testing.T, *Store) error {
		in := api.VolumeAttach{Instance: "web"}
		change(&in)
		return attaching(nobody, "disk", in)
	}
	just := func(*api.VolumeAttach) {}
	of := func(volume string) func(*testing.T, *Store) error {
		return attaching(nobody, volume, api.VolumeAttach{Instance: "web"})
	}
	detaching := func(volume string) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error {
			return second(s.Shelf.Detach(t.Context(), nobody, volume, api.VolumeDetach{Instance: "web"}))
		}
	}
	theirs := func(t *testing.T, s *Store) {
		must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{ID: id(volumeKind, 5), Name: "theirs", Status: api.VolumeAvailable, Host: "b", Location: at("/fast/theirs")}))(t)
	}
	off := offloaded(web)
	checkClusterRefusals(t, map[string]refusal{
		"volume that moves":       {inTurn(off, moving(diskMigration())), to(just), api.CodeMigrationActive, "attach volume disk"},
		"in error":                {inTurn(off, dataStatus(api.VolumeError)), of("data"), api.CodeVolumeNotAvailable, "it is error"},
		"in use":                  {inTurn(off, reserved(func(in *api.AttachmentReserve) { in.VolumeID = data })), of("data"), api.CodeVolumeInUse, "at instance app"},
		"its own again":           {off, of("root"), api.CodeVolumeInUse, "at instance web"},
		"policy":                  {inTurn(off, attached(nil), policy(api.PolicyMultiattach, false)), to(just), api.CodePolicyDenied, "multiattach"},
		"multiattach and qcow2":   {inTurn(off, rawSQL("UPDATE locations SET format = 'qcow2' WHERE volume_id = '"+disk+"'")), to(just), api.CodeUnsupportedDisk, "it is qcow2"},
		"device taken":            {off, to(func(in *api.VolumeAttach) { in.Device = "vda" }), api.CodeConflict, "vda of instance web is taken"},
		"device of a cdrom":       {off, to(func(in *api.VolumeAttach) { in.Device = "sda" }), api.CodeConflict, "it is a cdrom"},
		"root slot filled":        {off, to(func(in *api.VolumeAttach) { in.Root = true }), api.CodeConflict, "vda of instance web is taken"},
		"root slot not asked for": {inTurn(off, detached("root")), to(func(in *api.VolumeAttach) { in.Device = "vda" }), api.CodeRootAttachForbidden, "say --root"},
		"root elsewhere":          {inTurn(off, detached("root")), to(func(in *api.VolumeAttach) { in.Device, in.Root = "vdb", true }), api.CodeConflict, "not its root slot"},
		"root and the policy off": {inTurn(off, detached("root")), to(func(in *api.VolumeAttach) { in.Root = true }), api.CodePolicyDenied, "multiattach_bootable"},
		"no root slot":            {offloaded(app), to(func(in *api.VolumeAttach) { in.Instance, in.Root = "app", true }), api.CodeConflict, "no root slot"},
		"locked":                  {inTurn(off, lockedInstance(web)), to(just), api.CodeInstanceLocked, "attach a volume to instance web"},
		"odd mode":                {off, to(func(in *api.VolumeAttach) { in.Mode = "w" }), api.CodeInvalidArgument, "rw and ro"},
		"odd device":              {off, to(func(in *api.VolumeAttach) { in.Device = "../vda" }), api.CodeInvalidArgument, "device"},
		"unknown volume":          {off, of("x"), api.CodeNotFound, "no volume"},
		"unknown instance":        {nil, to(func(in *api.VolumeAttach) { in.Instance = "x" }), api.CodeNotFound, "no instance"},
		"host and a volume that it does not reach": {
			inTurn(off, theirs), attaching(as(hostA), "theirs", api.VolumeAttach{Instance: "web"}), api.CodeNotYourHost, "theirs",
		},
		"stale host":                 {off, attaching(store.Call{Who: "test", Host: &store.HostToken{ID: hostA, Epoch: 2}}, "disk", api.VolumeAttach{Instance: "web"}), api.CodeStaleEpoch, "epoch 2"},
		"detach of one not there":    {off, detaching("disk"), api.CodeNotFound, "disk is not attached to instance web"},
		"detach of a locked one":     {inTurn(off, lockedInstance(web)), detaching("root"), api.CodeInstanceLocked, "detach a volume from instance web"},
		"detach of one that is on":   {nil, detaching("root"), api.CodeInternal, ErrOnHost.Error()},
		"detach of one that is kept": {shelved(web), detaching("root"), api.CodeInternal, ErrOnHost.Error()},
	})
}

func TestDevicesAreFoundUntilThereAreNone(t *testing.T) {
	i := api.Instance{Name: "web"}
	for n := range 26 + 26*26 {
		device, err := freeDevice(i, false)
		if err != nil {
			t.Fatalf("device %d: %v", n, err)
		}
		if want := map[int]string{0: "vda", 25: "vdz", 26: "vdaa", 51: "vdaz", 52: "vdba", 701: "vdzz"}[n]; want != "" && device != want {
			t.Errorf("device %d = %s, want %s", n, device, want)
		}
		i.BlockDeviceMappings = append(i.BlockDeviceMappings, api.BlockDeviceMapping{Device: device})
	}
	wantCode(t, second(freeDevice(i, false)), api.CodeConflict, "every device is taken")
}

func TestWhereAnInstanceMayBeUnshelved(t *testing.T) {
	toB := func(t *testing.T, s *Store) { attached(nil)(t, s) }
	for name, tc := range map[string]struct {
		before   func(*testing.T, *Store)
		instance string
		host     string
		want     string // the hosts
		code     api.Code
		text     string
	}{
		"at its last host first":   {before: inTurn(toB, offloaded(app)), instance: app, want: hostA + " " + hostB},
		"where it was asked for":   {before: inTurn(toB, offloaded(app)), instance: app, host: "b", want: hostB},
		"where its volumes are":    {before: offloaded(web), instance: web, want: hostA},
		"on the host that kept it": {before: shelved(web), instance: web, host: "a", want: hostA},
		"nowhere else than it is":  {before: shelved(web), instance: web, host: "b", code: api.CodeStateForbidden, text: "take it off that with"},
		"not while it comes back":  {before: movedTo(web, toShelf(), offload(), claim()), instance: web, host: "b", code: api.CodeConflict, text: "host a is bringing it back"},
		"not out of reach":         {before: offloaded(web), instance: web, host: "b", code: api.CodeUnsupportedDisk, text: "on host b"},
		"not while it runs":        {instance: web, code: api.CodeStateForbidden, text: "it is running on host a, not shelved"},
		"not without root":         {before: inTurn(offloaded(web), detached("root")), instance: web, code: api.CodeRootVolumeMissing, text: "volume attach VOLUME web --root"},
		"not while it is locked":   {before: inTurn(offloaded(web), lockedInstance(web)), instance: web, code: api.CodeInstanceLocked, text: "audit"},
		"not on an unknown host":   {before: offloaded(web), instance: web, host: "c", code: api.CodeNotFound, text: "host"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			if tc.before != nil {
				tc.before(t, s)
			}
			plan, err := s.Shelf.PlanUnshelve(t.Context(), tc.instance, tc.host)
			if tc.code != "" {
				wantCode(t, err, tc.code, tc.text)
			} else if got := strings.Join(plan.Hosts, " "); err != nil || got != tc.want {
				t.Errorf("hosts = %q %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestAnInstanceUnshelvesOnTheHostThatCameToShareItsPoolLater(t *testing.T) {
	s := newCluster(t)
	nfsShared := func(shared bool) {
		t.Helper()
		for host, name := range map[string]string{hostA: "a", hostB: "b"} {
			in := reportOf(host, name)
			in.Pools = clusterPools()
			in.Pools[slices.IndexFunc(in.Pools, func(p api.Pool) bool { return p.Name == "nfs" })].Shared = shared
			must(s.Reports.Receive(t.Context(), nobody, in))(t)
		}
	}
	nfsShared(false)
	late := id(volumeKind, 61)
	must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{ID: late, Name: "late-a", Host: "a", Status: api.VolumeAvailable, Location: at("/nfs/late")}))(t)
	attached(func(in *api.AttachmentReserve) { in.VolumeID = late })(t, s)
	inTurn(instanceState(api.InstanceStopped, app), offloaded(app))(t, s)
	_, err := s.Shelf.PlanUnshelve(t.Context(), app, "b")
	wantCode(t, err, api.CodeUnsupportedDisk, "no shared pool")
	nfsShared(true)
	must(s.Shelf.PlanUnshelve(t.Context(), app, "b"))(t)
}
