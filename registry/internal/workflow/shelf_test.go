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
	"github.com/volferry/volferry/registry/internal/validate"
)

func transitioning(call store.Call, instance string, in api.InstanceTransition) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error {
		return second(s.Shelf.Transition(t.Context(), call, instance, in))
	}
}

// wantInstance requires the state of an instance and the name of its host.
func wantInstance(t *testing.T, s *Store, ref string, state api.InstanceState, host string) {
	t.Helper()
	if i := must(s.Instances.Get(t.Context(), ref, everyone))(t); i.State != state || i.Host != host {
		t.Errorf("instance %s is %s on host %q, want %s on %q", i.Name, i.State, i.Host, state, host)
	}
}

func TestAnInstanceGoesToTheShelfAndComesBackAsItWas(t *testing.T) {
	s := newCluster(t)
	shelved(web)(t, s)
	wantInstance(t, s, web, api.InstanceShelved, "a")
	movedTo(web, offload())(t, s)
	wantInstance(t, s, web, api.InstanceShelvedOffloaded, "")
	if a := must(s.Attachments.Get(t.Context(), rootAt, everyone))(t); a.Host != "" || a.State != api.AttachmentAttached {
		t.Errorf("the attachment of an instance that no host has = %+v", a)
	}
	wantVolume(t, s, root, api.VolumeInUse, 1)
	got := must(s.Shelf.Transition(t.Context(), nobody, web, claim()))(t)
	if diff := cmp.Diff(webDefinition(), got.Definition); diff != "" {
		t.Errorf("definition (-stored +claimed):\n%s", diff)
	}
	if got.Instance.Host != "a" || got.Instance.State != api.InstanceShelved || len(got.Attachments) != 1 || got.Attachments[0].Host != "a" {
		t.Errorf("claimed %+v", got)
	}
	done := must(s.Shelf.Transition(t.Context(), nobody, web, complete()))(t)
	if done.Definition != nil {
		t.Error("a host that has the domain is given its definition")
	}
	wantInstance(t, s, web, api.InstanceStopped, "a")
	if rows := dump(t.Context(), t, s)["shelves"]; len(rows) != 0 {
		t.Errorf("left on the shelf: %q", rows)
	}
	if e := lastEvent(t, s); e.What != "instance.transition" || e.From != "shelved" || e.To != "stopped" || e.Host != "a" || e.OpID != "op-unshelve" || e.Token == nil || e.Token.Epoch != 1 {
		t.Errorf("event = %+v", e)
	}
}

func TestEveryStepOfAShelveIsDoneOnceByItsOp(t *testing.T) {
	s := newCluster(t)
	for _, in := range []api.InstanceTransition{toShelf(), offload(), claim(), undoClaim(), claim(), complete()} {
		first := must(s.Shelf.Transition(t.Context(), nobody, web, in))(t)
		if in.OpID == "op-unshelve" && in.To == api.InstanceShelvedOffloaded {
			in.OpID = "op-unshelve" // the op of the claim undoes it
		}
		if err := unchanged(t, s, func() error {
			again, err := s.Shelf.Transition(t.Context(), nobody, web, in)
			if diff := cmp.Diff(first, again); diff != "" {
				t.Errorf("%s to %s again (-first +again):\n%s", in.From, in.To, diff)
			}
			return err
		}); err != nil {
			t.Errorf("%s to %s again: %v", in.From, in.To, err)
		}
	}
}

func TestTheDefinitionOnTheShelfIsReplacedByItsHost(t *testing.T) {
	s := newCluster(t)
	edited := toShelf()
	edited.From, edited.Definition.Domain = api.InstanceShelved, "<domain><title>edited</title></domain>"
	movedTo(web, toShelf(), edited, offload())(t, s)
	if got := must(s.Shelf.Transition(t.Context(), nobody, web, claim()))(t); got.Definition.Domain != edited.Definition.Domain {
		t.Errorf("domain = %s", got.Definition.Domain)
	}
}

// A host knows first whether its instance runs; its last report is older.
func TestAnInstanceThatWasReportedRunningIsShelvedOnTheWordOfItsHost(t *testing.T) {
	for _, state := range []api.InstanceState{api.InstanceRunning, api.InstancePaused, api.InstanceStopped} {
		s := newCluster(t)
		inTurn(instanceState(state, web), shelved(web))(t, s)
		wantInstance(t, s, web, api.InstanceShelved, "a")
	}
}

func TestNoReportPutsAnInstanceOnTheShelfOrTakesItFromThere(t *testing.T) {
	s := newCluster(t)
	instanceState(api.InstanceShelved, web)(t, s)
	wantInstance(t, s, web, api.InstanceRunning, "a")
	inTurn(shelved(web), instanceState(api.InstanceRunning, web))(t, s)
	wantInstance(t, s, web, api.InstanceShelved, "a")
	inTurn(movedTo(web, offload()), instanceState(api.InstanceStopped, web))(t, s)
	wantInstance(t, s, web, api.InstanceShelvedOffloaded, "")
	inTurn(movedTo(web, claim(), complete()), instanceState(api.InstanceStopped, web), instanceState(api.InstanceRunning, web))(t, s)
	wantInstance(t, s, web, api.InstanceRunning, "a")
}

// The report after an unshelve may be the same as the one before.
func TestAReportAfterAnUnshelveIsStoredThoughItSaysNothingNew(t *testing.T) {
	s := newCluster(t)
	inTurn(instanceState(api.InstanceRunning, web), movedTo(web, toShelf(), offload(), claim(), complete()), instanceState(api.InstanceRunning, web))(t, s)
	wantInstance(t, s, web, api.InstanceRunning, "a")
}

func TestTheNoteOfAnInstanceIsItsHosts(t *testing.T) {
	s := newCluster(t)
	note := func(text string) {
		t.Helper()
		must(s.Reports.Receive(t.Context(), nobody, api.HostReport{
			ID: hostA, Name: "a", BootID: "first", Pools: clusterPools(), Instances: []api.InstanceReport{{ID: web, State: api.InstanceStopped, Note: text}},
		}))(t)
	}
	noted := func() string { return must(s.Instances.Get(t.Context(), web, everyone))(t).Note }
	if note("its domain has another disk"); noted() != "its domain has another disk" {
		t.Errorf("note = %q", noted())
	}
	if shelved(web)(t, s); noted() == "" {
		t.Error("the note of a shelved instance is gone")
	}
	if movedTo(web, offload())(t, s); noted() != "" {
		t.Errorf("note of an instance that no host has = %q", noted())
	}
	if note("back by somebody's hand"); noted() != "" {
		t.Errorf("a host noted %q of an instance that it does not have", noted())
	}
}

func TestTransitionsOfInstancesThatAreRefused(t *testing.T) {
	edit := func(in api.InstanceTransition, change func(*api.InstanceTransition)) api.InstanceTransition {
		change(&in)
		return in
	}
	without := func(in api.InstanceTransition) api.InstanceTransition {
		in.Definition = nil
		return in
	}
	define := func(change func(*api.InstanceDefinition)) api.InstanceTransition {
		return edit(toShelf(), func(in *api.InstanceTransition) { change(in.Definition) })
	}
	try := func(in api.InstanceTransition) func(*testing.T, *Store) error { return transitioning(nobody, web, in) }
	nameAtB := func(t *testing.T, s *Store) {
		must(s.Instances.Register(t.Context(), nobody, api.InstanceRegister{ID: id(instanceKind, 9), Name: "app", Host: "b", State: api.InstanceStopped}))(t)
	}
	checkClusterRefusals(t, map[string]refusal{
		"volume that moves":         {moving(rootMigration()), try(toShelf()), api.CodeMigrationActive, "migration " + move + " is moving its volume root"},
		"locked":                    {lockedInstance(web), try(toShelf()), api.CodeInstanceLocked, "cannot shelve instance web: it is locked (audit)"},
		"attachment in between":     {reserved(atWeb), try(toShelf()), api.CodeConflict, "the attachment of its volume disk is reserved"},
		"in error":                  {instanceState(api.InstanceError, web), try(toShelf()), api.CodeConflict, "web is error, not stopped"},
		"shelved already":           {shelved(web), try(edit(toShelf(), func(in *api.InstanceTransition) { in.OpID = "op-2" })), api.CodeConflict, "web is shelved, not stopped"},
		"another host's":            {nil, try(ofB(toShelf())), api.CodeNotYourHost, "host a's"},
		"stale epoch":               {nil, try(edit(toShelf(), func(in *api.InstanceTransition) { in.Epoch = 2 })), api.CodeStaleEpoch, "epoch 2"},
		"fenced":                    {fenceA, try(toShelf()), api.CodeStaleEpoch, "epoch 2"},
		"host that says another":    {nil, transitioning(as(hostB), web, toShelf()), api.CodeNotYourHost, "you are host b"},
		"unknown instance":          {nil, transitioning(nobody, id(instanceKind, 99), toShelf()), api.CodeNotFound, "no instance"},
		"definition of none":        {nil, try(edit(toShelf(), func(in *api.InstanceTransition) { in.From = api.InstanceShelved })), api.CodeConflict, "web is running, not shelved"},
		"offload of none":           {nil, try(offload()), api.CodeConflict, "web is running, not shelved"},
		"offload by another":        {shelved(web), try(ofB(offload())), api.CodeNotYourHost, "host a's"},
		"offload of a claim":        {movedTo(web, toShelf(), offload(), claim()), try(edit(offload(), func(in *api.InstanceTransition) { in.OpID = "op-3" })), api.CodeConflict, "brought back by op op-unshelve"},
		"claim of none":             {nil, try(claim()), api.CodeConflict, "web is running, not shelved_offloaded"},
		"claim of one that is kept": {shelved(web), try(claim()), api.CodeConflict, "web is shelved, not"},
		"claim without asking":      {offloaded(web), try(ofB(claim())), api.CodeNotYourHost, "no operator asked for it"},
		"claim of a locked one":     {inTurn(offloaded(web), lockedInstance(web)), try(claim()), api.CodeInstanceLocked, "cannot unshelve instance web"},
		"claim without root":        {inTurn(stoppedWithoutRoot, offloaded(web)), try(claim()), api.CodeRootVolumeMissing, "cannot unshelve instance web without a root device volume"},
		"claim out of reach":        {inTurn(offloaded(web), askedOnB(web)), try(ofB(claim())), api.CodeUnsupportedDisk, "/fast/root of its volume root"},
		"claim and the name taken":  {inTurn(attached(nil), offloaded(app), askedOnB(app), nameAtB), transitioning(nobody, app, ofB(claim())), api.CodeConflict, "another instance of that name"},
		"claim by one that is fenced": {
			inTurn(offloaded(web), fenceA), try(claim()), api.CodeStaleEpoch, "epoch 2",
		},
		"completed by another": {movedTo(web, toShelf(), offload(), claim()), try(ofB(complete())), api.CodeNotYourHost, "host a's"},
		"completed by nobody":  {offloaded(web), try(complete()), api.CodeConflict, "web is shelved_offloaded, not shelved"},
		"undone by another":    {offloaded(web), try(edit(ofB(toShelf()), func(in *api.InstanceTransition) { in.From = api.InstanceShelved })), api.CodeNotYourHost, "another host had it last"},

		"no such step":         {nil, try(edit(without(toShelf()), func(in *api.InstanceTransition) { in.To = api.InstanceShelvedOffloaded })), api.CodeInvalidArgument, "from \"stopped\" to \"shelved_offloaded\""},
		"no definition":        {nil, try(without(toShelf())), api.CodeInvalidArgument, "definition of the instance is missing"},
		"definition of a step": {nil, try(edit(offload(), func(in *api.InstanceTransition) { in.Definition = webDefinition() })), api.CodeInvalidArgument, "no definition"},
		"no op":                {nil, try(edit(toShelf(), func(in *api.InstanceTransition) { in.OpID = "" })), api.CodeInvalidArgument, "op id is missing"},
		"empty domain":         {nil, try(define(func(d *api.InstanceDefinition) { d.Domain = "" })), api.CodeInvalidArgument, "definition of the domain is missing"},
		"large domain":         {nil, try(define(func(d *api.InstanceDefinition) { d.Domain = strings.Repeat("x", validate.MaxDomain+1) })), api.CodeInvalidArgument, "at most 524288"},
		"domain that is none":  {nil, try(define(func(d *api.InstanceDefinition) { d.Domain = "\xff" })), api.CodeInvalidArgument, "not text"},
		"domain with a zero":   {nil, try(define(func(d *api.InstanceDefinition) { d.Domain = "<a>\x00" })), api.CodeInvalidArgument, "not text"},
		"large NVRAM":          {nil, try(define(func(d *api.InstanceDefinition) { d.NVRAM = make([]byte, validate.MaxNVRAM+1) })), api.CodeInvalidArgument, "at most 262144"},
		"odd device":           {nil, try(define(func(d *api.InstanceDefinition) { d.Disks["../x"] = storetest.RootSlot })), api.CodeInvalidArgument, "../x"},
		"empty disk":           {nil, try(define(func(d *api.InstanceDefinition) { d.Disks["vdb"] = api.SlotDefinition{} })), api.CodeInvalidArgument, "disk vdb is missing"},
		"large disk": {nil, try(define(func(d *api.InstanceDefinition) {
			d.Disks["vdb"] = api.SlotDefinition{Disk: strings.Repeat("x", validate.MaxSlotDefinition+1)}
		})), api.CodeInvalidArgument, "disk vdb has"},

		"adopted as shelved": {nil, func(t *testing.T, s *Store) error {
			return second(s.Instances.Register(t.Context(), nobody, api.InstanceRegister{ID: id(instanceKind, 9), Name: "x", Host: "a", State: api.InstanceShelved}))
		}, api.CodeInvalidArgument, "from the shelf"},
		"long note": {nil, func(t *testing.T, s *Store) error {
			return second(s.Reports.Receive(t.Context(), nobody, api.HostReport{
				ID: hostA, Name: "a", BootID: "first", Instances: []api.InstanceReport{{ID: web, State: api.InstanceStopped, Note: strings.Repeat("x", validate.MaxNote+1)}},
			}))
		}, api.CodeInvalidArgument, "note"},
	})
}

func TestAnInstanceThatAnOperatorAskedForIsTakenThere(t *testing.T) {
	s := newCluster(t)
	inTurn(attached(nil), offloaded(app), askedOnB(app))(t, s)
	got := must(s.Shelf.Transition(t.Context(), nobody, app, ofB(claim())))(t)
	if got.Instance.Host != "b" || got.Attachments[0].Host != "b" {
		t.Errorf("claimed %+v", got)
	}
	// The previous host gets a refusal with the winner's name.
	wantCode(t, transitioning(nobody, app, claim())(t, s), api.CodeConflict, "host b has it, and it is shelved")
	movedTo(app, ofB(complete()))(t, s)
	wantInstance(t, s, app, api.InstanceStopped, "b")
	wantCode(t, transitioning(nobody, app, claim())(t, s), api.CodeConflict, "host b has it, and it is stopped")
}

func TestAClaimThatIsUndoneLeavesTheShelfAsItWas(t *testing.T) {
	s := newCluster(t)
	inTurn(attached(nil), offloaded(app), askedOnB(app))(t, s)
	shelf := dump(t.Context(), t, s)["shelves"]
	undo := undoClaim()
	undo.Host, undo.OpID = hostB, ofB(claim()).OpID
	movedTo(app, ofB(claim()), undo)(t, s)
	wantInstance(t, s, app, api.InstanceShelvedOffloaded, "")
	if diff := cmp.Diff(shelf, dump(t.Context(), t, s)["shelves"]); diff != "" {
		t.Errorf("shelf (-before +after):\n%s", diff)
	}
	// The last host may claim it as before.
	movedTo(app, claim(), complete())(t, s)
	wantInstance(t, s, app, api.InstanceStopped, "a")
}

// The previous host may be forgotten, or have another instance of this name.
func TestAClaimIsUndoneWhateverBecameOfTheHostBefore(t *testing.T) {
	for name, became := range map[string]func(*testing.T, *Store){
		"forgotten": rawSQL("UPDATE shelves SET from_host_id = 'gone'"),
		"another of the name": func(t *testing.T, s *Store) {
			must(s.Instances.Register(t.Context(), nobody, api.InstanceRegister{ID: id(instanceKind, 9), Name: "app", Host: "a", State: api.InstanceStopped}))(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			undo := undoClaim()
			undo.Host, undo.OpID = hostB, ofB(claim()).OpID
			inTurn(attached(nil), offloaded(app), askedOnB(app), movedTo(app, ofB(claim())), became, movedTo(app, undo))(t, s)
			wantInstance(t, s, app, api.InstanceShelvedOffloaded, "")
			// The host that claimed it is its last host.
			movedTo(app, ofB(claim()), ofB(complete()))(t, s)
			wantInstance(t, s, app, api.InstanceStopped, "b")
		})
	}
}

// The stored definition is enough to unshelve an instance without its fenced host, whether that had
// kept the instance or was unshelving it.
func TestAnInstanceOnTheShelfOfAFencedHostIsTakenElsewhere(t *testing.T) {
	for name, onShelf := range map[string]func(*testing.T, *Store){
		"kept":    shelved(app),
		"claimed": movedTo(app, toShelf(), offload(), claim()),
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			inTurn(attached(nil), onShelf)(t, s)
			if _, err := s.Shelf.PlanUnshelve(t.Context(), app, "b"); err == nil {
				t.Error("it may be taken from a host that is there")
			}
			askedOnB(app)(t, s)
			wantInstance(t, s, app, api.InstanceShelved, "a")

			must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
			if plan := must(s.Shelf.PlanUnshelve(t.Context(), app, "b"))(t); !slices.Equal(plan.Hosts, []string{hostB}) {
				t.Errorf("plan = %+v", plan)
			}
			askedOnB(app)(t, s)
			wantInstance(t, s, app, api.InstanceShelvedOffloaded, "")
			movedTo(app, ofB(claim()), ofB(complete()))(t, s)
			wantInstance(t, s, app, api.InstanceStopped, "b")

			// The fenced host has lost the instance, whatever it was doing.
			must(s.Hosts.Rejoin(t.Context(), nobody, "a", api.HostRejoin{Epoch: 2}))(t)
			for _, in := range []api.InstanceTransition{offload(), undoClaim(), complete()} {
				in.Epoch = 2
				wantCode(t, transitioning(nobody, app, in)(t, s), api.CodeNotYourHost, "host b's")
			}
		})
	}
}

func TestAFenceOfBeforeARestoreTakesNoInstanceFromItsHost(t *testing.T) {
	s := newCluster(t)
	inTurn(attached(nil), shelved(app))(t, s)
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t)
	askedOnB(app)(t, s)
	wantInstance(t, s, app, api.InstanceShelved, "a")
}

func TestOfTwoHostsThatClaimAtOnceOneWins(t *testing.T) {
	const rounds = 60
	s := newCluster(t)
	attached(nil)(t, s)
	winners := map[string]int{}
	at := hostA
	for n := range rounds {
		ops := func(in api.InstanceTransition, host string) api.InstanceTransition {
			in.Host, in.OpID = host, id(migrationKind, n)+host
			return in
		}
		movedTo(app, ops(toShelf(), at), ops(offload(), at))(t, s)
		for _, host := range []string{hostA, hostB} {
			if host != at {
				if err := s.Shelf.AskUnshelve(t.Context(), nobody, app, host); err != nil {
					t.Fatal(err)
				}
			}
		}
		results := make(chan error, 2)
		for _, host := range []string{hostA, hostB} {
			go func() { results <- second(s.Shelf.Transition(t.Context(), nobody, app, ops(claim(), host))) }()
		}
		errs := []error{<-results, <-results}
		lost := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
		if len(lost) != 1 || api.CodeOf(lost[0]) != api.CodeConflict {
			t.Fatalf("round %d: %v, want one winner and one conflict", n, errs)
		}
		name := must(s.Instances.Get(t.Context(), app, everyone))(t).Host
		at = map[string]string{"a": hostA, "b": hostB}[name]
		winners[name]++
		movedTo(app, ops(complete(), at))(t, s)
	}
	t.Logf("winners: %v", winners)
}

func TestAnInstanceThatNoHostHasIsSeenByWhoHadItLastAndWhoWasAsked(t *testing.T) {
	s := newCluster(t)
	inTurn(attached(nil), offloaded(app))(t, s)
	see := func(host string) error { return second(s.Instances.Get(t.Context(), app, store.Viewer{HostID: host})) }
	if err := errors.Join(see(hostA), second(s.Attachments.Get(t.Context(), first, store.Viewer{HostID: hostA}))); err != nil {
		t.Error(err)
	}
	wantCode(t, see(hostB), api.CodeNotYourHost, "another host's")
	askedOnB(app)(t, s)
	if err := see(hostB); err != nil {
		t.Error(err)
	}
	movedTo(app, claim())(t, s)
	wantCode(t, see(hostB), api.CodeNotYourHost, "another host's")
}

// No domain names the disks of an instance without a host.
func TestAnInstanceThatNoHostHasIsForgottenUnlessItIsLocked(t *testing.T) {
	s := newCluster(t)
	inTurn(attached(nil), offloaded(app), lockedInstance(app))(t, s)
	err := unchanged(t, s, func() error { return second(s.Instances.Forget(t.Context(), nobody, app, store.Forget{})) })
	wantCode(t, err, api.CodeInstanceLocked, "cannot forget instance app")
	must(s.Instances.Unlock(t.Context(), nobody, app))(t)
	err = unchanged(t, s, func() error { return second(s.Instances.Forget(t.Context(), nobody, app, store.Forget{})) })
	wantCode(t, err, api.CodeStateForbidden, "its definition would be lost for good")
	must(s.Instances.Forget(t.Context(), nobody, app, store.Forget{WithDefinition: true}))(t)
	wantVolume(t, s, disk, api.VolumeAvailable, 0)
}

func TestWhatIsRefusedForVolumesOfInstancesOnTheShelf(t *testing.T) {
	checkClusterRefusals(t, map[string]refusal{
		"moved while its host keeps it": {shelved(web), func(t *testing.T, s *Store) error {
			return second(s.Migrations.Register(t.Context(), nobody, rootMigration()))
		}, api.CodeStateForbidden, "cannot migrate volume root: its instance web is shelved and still on its host; unshelve it, or take it off"},
		"moved while its host keeps it, before a host is asked": {shelved(web), func(t *testing.T, s *Store) error {
			return s.Volumes.CheckMove(t.Context(), must(s.Volumes.Get(t.Context(), "root", everyone))(t))
		}, api.CodeStateForbidden, "still on its host"},
		"moved by a retype while its host keeps it": {inTurn(shelved(web), slowOnly), func(t *testing.T, s *Store) error {
			return second(s.Retypes.Plan(t.Context(), "root", api.VolumeRetype{Type: "slow-only", MigrationPolicy: api.RetypeOnDemand}))
		}, api.CodeStateForbidden, "still on its host"},
		"deleted": {offloaded(web), func(t *testing.T, s *Store) error { return second(s.Volumes.Forget(t.Context(), nobody, "root")) }, api.CodeVolumeInUse, "attached to instance web"},
		"detached by its host": {shelved(web), func(t *testing.T, s *Store) error {
			return second(s.Attachments.Transition(t.Context(), nobody, rootAt, attachmentStep(api.AttachmentDetaching, api.AttachmentAttached)))
		}, api.CodeRootDetachForbidden, "it is shelved"},
		"data volume detached by its host": {inTurn(attached(nil), shelved(app)), func(t *testing.T, s *Store) error {
			return second(s.Attachments.Transition(t.Context(), nobody, first, attachmentStep(api.AttachmentDetaching, api.AttachmentAttached)))
		}, api.CodeStateForbidden, "shelved and still on its host"},
		"released by its host": {shelved(web), func(t *testing.T, s *Store) error {
			return second(s.Attachments.Release(t.Context(), nobody, rootAt, release(true)))
		}, api.CodeStateForbidden, "shelved and still on its host"},
		"released by who had it": {offloaded(web), func(t *testing.T, s *Store) error {
			return second(s.Attachments.Release(t.Context(), nobody, rootAt, release(true)))
		}, api.CodeNotYourHost, "no host's: the instance is shelved_offloaded"},
	})
}

// The fenced host does not have such a volume: it is detached as usual.
func TestAnAttachmentThatIsNoHostsIsNotDeletedByForce(t *testing.T) {
	s := newCluster(t)
	inTurn(offloaded(web), fenceA)(t, s)
	wantCode(t, second(s.Attachments.ForceDelete(t.Context(), nobody, rootAt)), api.CodeStateForbidden, "no host has the instance")
	wantVolume(t, s, root, api.VolumeInUse, 1)
}

func TestNothingBeginsAtTheShelfWhileTheInstanceRunsOnAnotherHost(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*testing.T, *Store)
		do     func(*testing.T, *Store) error
	}{
		"shelve":                    {nil, transitioning(nobody, web, toShelf())},
		"unshelve":                  {offloaded(web), transitioning(nobody, web, claim())},
		"attach to what is shelved": {offloaded(web), attaching(nobody, "data", api.VolumeAttach{Instance: "web"})},
		"detach from what is shelved": {offloaded(web), func(t *testing.T, s *Store) error {
			return second(s.Shelf.Detach(t.Context(), nobody, "root", api.VolumeDetach{Instance: "web"}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			if tc.before != nil {
				tc.before(t, s)
			}
			for _, state := range []api.InstanceState{api.InstanceRunning, api.InstancePaused} {
				runs(t, s, hostB, "b", web, state)
				wantCode(t, unchanged(t, s, func() error { return tc.do(t, s) }), api.CodeStateForbidden, "runs on host b")
				if i := must(s.Instances.Get(t.Context(), web, everyone))(t); !strings.Contains(i.Note, "runs on host b") {
					t.Errorf("the note is %q", i.Note)
				}
			}
			runs(t, s, hostB, "b", web, api.InstanceStopped)
			if err := tc.do(t, s); err != nil {
				t.Errorf("it was stopped there: %v", err)
			}
		})
	}
}
