// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

// refusal is a request that must be refused with a code.
type refusal struct {
	name string
	code api.Code
	args []string
}

// refusesAll claims that each request is refused and that neither the volume nor
// the guest's disks are others after it.
func (p *plugged) refusesAll(t *testing.T, refusals []refusal) {
	t.Helper()
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			before, slots := p.show(t), p.host.slotsOf(t, p.guest.Name)
			p.host.refuses(t, r.code, r.args...)
			if diff := cmp.Diff(before, p.show(t)); diff != "" {
				t.Errorf("the volume changed (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(slots, p.host.slotsOf(t, p.guest.Name)); diff != "" {
				t.Errorf("the disks of the guest changed (-before +after):\n%s", diff)
			}
			p.guest.assertSameSlots(t)
		})
	}
}

func TestWhatMayNotBeDoneToAnAttachedVolumeIsRefused(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	other := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	h.ctl(t, "type", "create", "clustered", "--multiattach")
	v, free := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw)), h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	p := g.attach(t, v)
	p.writes(t)
	id := p.show(t).Attachments[0].ID
	p.refusesAll(t, []refusal{
		{"a second attachment", api.CodeVolumeInUse, []string{"volume", "attach", v.name, other.Name}},
		{"a second attachment that only reads", api.CodeVolumeInUse, []string{"volume", "attach", v.name, other.Name, "--mode", "ro"}},
		{"the same instance again", api.CodeConflict, []string{"volume", "attach", v.name, g.Name}},
		{"a device that is taken", api.CodeConflict, []string{"volume", "attach", free.name, g.Name, "--device", "vdb"}},
		{"the device of the root volume", api.CodeConflict, []string{"volume", "attach", free.name, g.Name, "--device", "vda"}},
		{"a device that is none", api.CodeInvalidArgument, []string{"volume", "attach", free.name, g.Name, "--device", "/dev/vdc"}},
		{"a bus that the guest does not have", api.CodeUnsupportedDisk, []string{"volume", "attach", free.name, g.Name, "--device", "sda"}},
		{"a volume that is not there", api.CodeNotFound, []string{"volume", "attach", "nothing", g.Name}},
		{"an instance that is not there", api.CodeNotFound, []string{"volume", "attach", free.name, "nobody"}},
		{"the root volume of a running guest", api.CodeRootDetachForbidden, []string{"volume", "detach", g.volumeName("vda"), g.Name}},
		{"the root volume by its attachment", api.CodeRootDetachForbidden, []string{"attachment", "delete", g.attachment(t, "vda").ID}},
		{"a volume from whom it is not at", api.CodeNotFound, []string{"volume", "detach", v.name, other.Name}},
		{"its deletion", api.CodeVolumeInUse, []string{"volume", "delete", v.name, "--yes"}},
		{"its deletion by force", api.CodeVolumeInUse, []string{"volume", "delete", v.name, "--force"}},
		{"the end of the attachment by force", api.CodeStateForbidden, []string{"attachment", "delete", id, "--force"}},
		{"a type that may be shared", api.CodeInUseRetype, []string{"volume", "retype", v.name, "--type", "clustered"}},
	})
	p.writes(t)
	p.quiesce(t)
	p.detach(t)
	p.assertHolds(t)
	h.ctl(t, "volume", "retype", v.name, "--type", "clustered")
	h.ctl(t, "volume", "retype", v.name, "--type", "default")
	g.assertSettled(t)
	other.assertSettled(t)
}

func TestWhileAVolumeMovesItsAttachmentsStayAsTheyAre(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	other := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	v, free := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw)), h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	p := g.attach(t, v)
	p.writes(t)
	for _, method := range []string{"overlay", "mirror"} {
		t.Run(method, func(t *testing.T) {
			m := idOf(t, h.ctl(t, "--no-wait", "volume", "migrate", v.name, "--to-pool", "b", "--method", method, "--bandwidth", "1MiB/s"))
			h.untilCopying(t, m)
			at := p.show(t).Attachments
			for _, r := range []refusal{
				{"attach", api.CodeMigrationActive, []string{"volume", "attach", v.name, other.Name}},
				{"detach", api.CodeMigrationActive, []string{"volume", "detach", v.name, g.Name}},
				{"detach by force", api.CodeMigrationActive, []string{"volume", "detach", v.name, g.Name, "--force"}},
				{"attachment delete", api.CodeMigrationActive, []string{"attachment", "delete", at[0].ID}},
				{"attachment delete by force", api.CodeMigrationActive, []string{"attachment", "delete", at[0].ID, "--force"}},
				{"delete", api.CodeMigrationActive, []string{"volume", "delete", v.name, "--yes"}},
				{"retype", api.CodeMigrationActive, []string{"volume", "retype", v.name, "--type", "default"}},
				{"another migration", api.CodeMigrationActive, []string{"volume", "migrate", v.name, "--to-pool", "b"}},
				{"instance forget", api.CodeMigrationActive, []string{"instance", "forget", g.Name}},
			} {
				t.Run(r.name, func(t *testing.T) {
					h.refuses(t, r.code, r.args...)
					if diff := cmp.Diff(at, p.show(t).Attachments); diff != "" {
						t.Errorf("the attachments changed (-before +after):\n%s", diff)
					}
				})
			}
			// The instance's other disks come and go meanwhile.
			h.ctl(t, "volume", "attach", free.name, g.Name)
			h.ctl(t, "volume", "detach", free.name, g.Name)
			p.writes(t)
			h.ctl(t, "migration", "cancel", m)
			p.writes(t)
			p.assertAttached(t)
		})
	}
	p.quiesce(t)
	p.detach(t)
	p.assertHolds(t)
	free.assertUntouched(t)
	g.assertSettled(t)
	other.assertSettled(t)
}

// A reserved attachment counts as one, though no guest has the disk.
func TestVolumeThatIsReservedDoesNotMove(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	other := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := h.sharedVolume(t, h.diskIn(t, a, api.FormatRaw))
	at := h.reserve(t, v, other)
	h.refuses(t, api.CodeVolumeNotAvailable, "volume", "migrate", v.name, "--to-pool", "b")
	p := g.attach(t, v)
	p.refusesAll(t, []refusal{
		{"volume migrate", api.CodeMultiattached, []string{"volume", "migrate", v.name, "--to-pool", "b"}},
		{"by mirror", api.CodeMultiattached, []string{"volume", "migrate", v.name, "--to-pool", "b", "--method", "mirror"}},
		{"migration start", api.CodeMultiattached, []string{"migration", "start", p.show(t).Attachments[1].ID, "--to-pool", "b"}},
	})
	h.refuses(t, api.CodeConflict, "volume", "detach", v.name, other.Name)
	h.ctl(t, "attachment", "delete", at.ID, "--force")
	p.writes(t)
	m := get[api.Migration](t, h, "migration", "volume", "migrate", v.name, "--to-pool", "b", "--delete-source", "--verify", "full")
	if m.Method != "mirror" || m.State != api.MigrationCompleted {
		t.Errorf("migration is %s by %s, want it completed by mirror", m.State, m.Method)
	}
	p.assertAttached(t)
	p.quiesce(t)
	p.detach(t)
	p.assertHolds(t)
	g.assertSettled(t)
	other.assertSettled(t)
}

// reserve keeps a volume for an instance at the registry, as the first step of an
// attach does that goes no further.
func (h *host) reserve(t *testing.T, v *volume, g *guest) api.Attachment {
	t.Helper()
	hosts := get[[]api.Host](t, h, "hosts", "host", "list")
	in := api.AttachmentReserve{
		ID: uuid.NewString(), VolumeID: v.id, InstanceID: g.UUID, Device: "vdz", Mode: api.ModeRO,
		Host: hosts[0].ID, Epoch: hosts[0].Epoch, Generation: v.show(t).Generation, OpID: uuid.NewString(),
	}
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	socket := h.RegistryCaller().Socket
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://registry/v1/attachments", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", uuid.NewString())
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= http.StatusBadRequest {
		t.Fatalf("reserve: %s: %v %s", answer.Status, err, text)
	}
	var doc struct {
		Attachment api.Attachment `json:"attachment"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Attachment
}
