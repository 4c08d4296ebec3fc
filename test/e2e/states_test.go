// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// statesPage is the page whose table is tried out.
const statesPage = "docs/reference/states.md"

// allowed is what the table says of what is not refused.
const allowed = "ok"

// stateRow is a line of the table: what each verb is answered in a state.
type stateRow struct {
	state   string
	answers []stateAnswer
}

type stateAnswer struct{ verb, want string }

// statesTable reads the table.
func statesTable(t *testing.T) []stateRow {
	t.Helper()
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, statesPage))
	if err != nil {
		t.Fatal(err)
	}
	var verbs []string
	var rows []stateRow
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		switch {
		case cells[0] == "state" && len(cells) > 3:
			verbs = cells[1:]
		case verbs != nil && len(cells) == len(verbs)+1 && !strings.HasPrefix(cells[0], "-"):
			row := stateRow{state: cells[0]}
			for i, verb := range verbs {
				row.answers = append(row.answers, stateAnswer{verb, cells[i+1]})
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// Every cell of the table is tried on an instance that is in that state: what is
// refused at both sockets, then what is allowed.
func TestEveryStateAnswersAsItsTableSays(t *testing.T) {
	leftToTestE2E(t)
	p := newPuppet(t)
	var states []string
	for _, row := range statesTable(t) {
		states = append(states, row.state)
		t.Run(row.state, func(t *testing.T) { p.tryRow(t, row) })
	}
	for state := range p.ways() {
		if !slices.Contains(states, state) {
			t.Errorf("%s says nothing of state %s", statesPage, state)
		}
	}
	p.rest(t)
	p.assertNoLeftovers(t, "shut off")
	p.spare.assertUntouched(t)
	p.disks[1].Volume.Path = p.volume(t, "vdb").Location.Path
	(&volume{host: p.host, disk: p.disks[1]}).assertUntouched(t)
}

// puppet is an instance with a root and a data volume that is brought into every
// state.
type puppet struct {
	*guest

	root, data string
	spare      *volume // attached nowhere, unless a verb attached it
	definition string  // where that of the domain is kept while it has none
	state      string  // that it is in, "" after a verb that led out of it
}

func newPuppet(t *testing.T) *puppet {
	t.Helper()
	h := sharedHost(t)
	boot := lab.Disk{Volume: lab.Volume{Path: filepath.Join(h.poolA, fmt.Sprintf("boot-%d", h.number())), Format: "raw"}, Serial: "root"}
	if err := lab.MakeBootVolume(t.Context(), boot.Volume, lab.BootVolumeBytes, "root"); err != nil {
		t.Fatal(err)
	}
	g := &guest{host: h, disks: []lab.Disk{boot, h.diskIn(t, h.poolA, api.FormatRaw)}}
	var err error
	g.Guest, err = h.Libvirtd.DefineGuest(t.Context(), lab.GuestConfig{Name: fmt.Sprintf("g%d", h.number()), UEFI: true, Disks: g.disks})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g.instance.ID != "" && !t.Failed() {
			g.forget(t)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	g.adopt(t)
	return &puppet{
		guest: g, root: g.volumeName("vda"), data: g.volumeName("vdb"),
		spare:      h.adoptVolume(t, h.diskIn(t, h.poolA, api.FormatRaw)),
		definition: filepath.Join(t.TempDir(), "domain.xml"),
	}
}

// ways lead into a state from where rest leaves it.
func (p *puppet) ways() map[string]func(*testing.T) {
	run := func(args ...string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			p.host.ctl(t, args...)
		}
	}
	both := func(ways ...func(*testing.T)) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			for _, way := range ways {
				way(t)
			}
		}
	}
	start, shelve := run("instance", "start", p.Name), run("instance", "shelve", p.Name)
	rootless := run("volume", "detach", p.root, p.Name)
	return map[string]func(*testing.T){
		"running":                        both(start, p.booted),
		"paused":                         both(start, run("instance", "pause", p.Name)),
		"stopped":                        both(),
		"stopped without root":           rootless,
		"shelved":                        run("instance", "shelve", p.Name, "--offload=false"),
		"shelved_offloaded":              shelve,
		"shelved_offloaded without root": both(shelve, rootless),
		"error":                          p.vanish,
		"locked":                         run("instance", "lock", p.Name, "--reason", "the test says so"),
	}
}

// booted waits until the guest can answer: it lets go of disks, and obeys its power
// button.
func (p *puppet) booted(t *testing.T) {
	t.Helper()
	if _, err := p.Disks(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// vanish takes the domain away behind Volferry's back.
func (p *puppet) vanish(t *testing.T) {
	t.Helper()
	xml := p.host.virsh(t, "dumpxml", p.Name, "--inactive")
	if err := os.WriteFile(p.definition, []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	p.host.virsh(t, "undefine", p.Name, "--keep-nvram")
	eventually(t, "the missing domain is seen", func() bool { return p.show(t).State == api.InstanceError })
}

func (p *puppet) show(t *testing.T) api.Instance {
	t.Helper()
	return get[api.Instance](t, p.host, "instance", "instance", "show", p.Name)
}

// rest brings the instance from every state to stopped, with both its volumes.
func (p *puppet) rest(t *testing.T) {
	t.Helper()
	inst := p.show(t)
	if inst.State == api.InstanceError {
		p.host.virsh(t, "define", p.definition)
		if !p.has(t, p.data) {
			p.host.virsh(t, "detach-disk", p.Name, "vdb", "--config")
		}
		eventually(t, "the domain is seen again", func() bool { return p.show(t).State == api.InstanceStopped })
	}
	if inst.Locked {
		p.host.ctl(t, "instance", "unlock", p.Name)
	}
	if p.rootSlot(t).VolumeID == nil {
		p.host.ctl(t, "volume", "attach", p.root, p.Name, "--root")
	}
	if inst.State == api.InstanceShelved || inst.State == api.InstanceShelvedOffloaded {
		p.host.ctl(t, "instance", "unshelve", p.Name)
	}
	if p.show(t).State != api.InstanceStopped {
		p.host.ctl(t, "instance", "stop", p.Name, "--force")
	}
	if p.has(t, p.spare.name) {
		p.host.ctl(t, "volume", "detach", p.spare.name, p.Name)
	}
	if !p.has(t, p.data) {
		p.host.ctl(t, "volume", "attach", p.data, p.Name, "--device", "vdb")
	}
}

// has reports whether a volume is attached to somebody.
func (p *puppet) has(t *testing.T, volume string) bool {
	t.Helper()
	return len(get[api.Volume](t, p.host, "volume", "volume", "show", volume).Attachments) > 0
}

// command is the command line of a verb of the table.
func (p *puppet) command(t *testing.T, verb string) []string {
	t.Helper()
	switch verb {
	case "attach root":
		return []string{"volume", "attach", p.spare.name, p.Name, "--root"}
	case "detach root":
		return []string{"volume", "detach", p.root, p.Name}
	case "attach data":
		return []string{"volume", "attach", p.spare.name, p.Name}
	case "detach data":
		return []string{"volume", "detach", p.data, p.Name}
	case "migrate":
		to := map[string]string{"a": "b", "b": "a"}[get[api.Volume](t, p.host, "volume", "volume", "show", p.data).Location.Pool]
		return []string{"volume", "migrate", p.data, "--to-pool", to}
	case "start", "stop", "shelve", "unshelve":
		return []string{"instance", verb, p.Name}
	}
	t.Fatalf("%s has a verb that is not known: %s", statesPage, verb)
	return nil
}

// undo takes back what a verb has done that was allowed.
func (p *puppet) undo(t *testing.T, verb string) {
	t.Helper()
	switch {
	case verb == "migrate":
	case verb == "attach root", verb == "attach data" && p.state != "paused":
		p.host.ctl(t, "volume", "detach", p.spare.name, p.Name)
	case verb == "detach root":
		p.host.ctl(t, "volume", "attach", p.root, p.Name, "--root")
	case verb == "detach data" && p.state != "error":
		p.host.ctl(t, "volume", "attach", p.data, p.Name, "--device", "vdb")
	default:
		p.state = ""
	}
}

// be brings the instance into the state, if it is not in it.
func (p *puppet) be(t *testing.T, state string) {
	t.Helper()
	if p.state == state {
		return
	}
	way, known := p.ways()[state]
	if !known {
		t.Fatalf("%s has a state that is not known: %s", statesPage, state)
	}
	p.rest(t)
	way(t)
	p.state = state
}

func (p *puppet) tryRow(t *testing.T, row stateRow) {
	t.Helper()
	p.be(t, row.state)
	before, domain := p.show(t), p.domain(t)
	for _, a := range row.answers {
		if a.want != allowed {
			p.isRefused(t, row.state, a)
		}
	}
	after := p.show(t)
	after.UpdatedAt = before.UpdatedAt // each report of its host is one
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("what was refused changed the instance (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(domain, p.domain(t)); diff != "" {
		t.Errorf("what was refused changed the domain (-before +after):\n%s", diff)
	}
	if row.state == "running" {
		p.refusesLocked(t)
	}
	for _, a := range row.answers {
		if a.want == allowed {
			p.isAllowed(t, row.state, a)
		}
	}
	p.state = ""
}

// domain is the persistent definition of the domain, "" if there is none.
func (p *puppet) domain(t *testing.T) string {
	t.Helper()
	xml, err := p.host.Libvirtd.Virsh(t.Context(), "dumpxml", p.Name, "--inactive")
	if err != nil && !strings.Contains(err.Error(), "failed to get domain") {
		t.Fatal(err)
	}
	return xml
}

// try asks for a verb at a socket and returns the code of the answer, and what
// volferryctl ended with.
func (p *puppet) try(t *testing.T, at site.Caller, verb string) (api.Code, error) {
	t.Helper()
	_, err := at.Ctl(t.Context(), append([]string{"-o", "json", "--progress", "none"}, p.command(t, verb)...)...)
	return codeOf(err), err
}

// isRefused tries what the table says is refused.
func (p *puppet) isRefused(t *testing.T, state string, a stateAnswer) {
	t.Helper()
	code := api.Code(a.want)
	exit, sockets := code.ExitStatus(), []site.Caller{p.host.Caller, p.host.RegistryCaller()}
	if state == "paused" && a.verb == "detach data" {
		exit, sockets = api.ExitOpFailed, sockets[:1] // it is taken on, and lasts half a minute
	}
	for _, at := range sockets {
		p.be(t, state)
		got, err := p.try(t, at, a.verb)
		var failed *site.CtlError
		if got != code || !errors.As(err, &failed) || failed.Exit != exit {
			t.Errorf("state %s, verb %s, at %s: want %s and exit status %d, got %s: %v", state, a.verb, filepath.Base(at.Socket), code, exit, got, err)
		}
		if err == nil {
			p.state = "" // and who knows what it is in
		}
	}
}

// isAllowed tries what the table says is allowed.
func (p *puppet) isAllowed(t *testing.T, state string, a stateAnswer) {
	t.Helper()
	p.be(t, state)
	if got, err := p.try(t, p.host.Caller, a.verb); err != nil {
		t.Errorf("state %s, verb %s: want %s, got %s: %v", state, a.verb, a.want, got, err)
		p.state = ""
		return
	}
	p.undo(t, a.verb)
}

// refusesLocked is what the page says of a running instance that is locked.
func (p *puppet) refusesLocked(t *testing.T) {
	t.Helper()
	p.host.ctl(t, "instance", "lock", p.Name, "--reason", "the test says so")
	for _, verb := range []string{"start", "stop", "shelve"} {
		p.host.refuses(t, api.CodeInstanceLocked, "instance", verb, p.Name)
	}
	p.host.ctl(t, "instance", "unlock", p.Name)
}

// codeOf is the code that a volferryctl -o json has ended with, allowed if it did
// not fail.
func codeOf(err error) api.Code {
	if err == nil {
		return allowed
	}
	var failed *site.CtlError
	var body api.ErrorBody
	if !errors.As(err, &failed) || json.Unmarshal([]byte(failed.Stderr), &body) != nil || body.Error == nil {
		return "no error document"
	}
	return body.Error.Code
}
