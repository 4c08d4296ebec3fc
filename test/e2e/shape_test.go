// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// documents are the members that the contract promises, by noun. More may come.
var documents = map[string]string{
	"volume":     "id name status size_bytes type multiattach bootable location attachments",
	"location":   "pool name path format",
	"attachment": "id volume_id instance_id host mode device boot_index state location",
	"instance":   "id name host state block_device_mappings",
	"mapping":    "device boot_index volume_id attachment_id",
	"migration": "id volume_id src_attachment_id dst_attachment_id src dst state phase bytes_total bytes_done " +
		"rate_bytes_per_second overlay_bytes stall_ms exposed_seconds started_at finished_at error",
	"stall_ms": "start switch",
	"which":    "volume_id authoritative registry journal live persistent agree explanation",
}

// document runs volferryctl -o json and returns what is under the noun, which
// is all that there is beside the version and the others.
func (h *host) document(t *testing.T, noun string, args ...string) any {
	t.Helper()
	out := h.ctl(t, append([]string{"-o", "json"}, args...)...)
	var doc map[string]any
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if v, ok := doc["schema_version"].(float64); !ok || v != api.SchemaVersion {
		t.Errorf("schema_version is %v in %s", doc["schema_version"], out)
	}
	if doc[noun] == nil || len(doc) != 2 {
		t.Fatalf("want schema_version and %s in %s", noun, out)
	}
	return doc[noun]
}

// mustBe claims that a value is an object with the members of its kind, and
// returns it.
func mustBe(t *testing.T, kind string, value any) map[string]any {
	t.Helper()
	object, ok := value.(map[string]any)
	if !ok {
		t.Fatalf("%s is no object: %v", kind, value)
	}
	for _, name := range strings.Fields(documents[kind]) {
		if _, ok := object[name]; !ok {
			t.Errorf("%s has no %s: %v", kind, name, object)
		}
	}
	return object
}

// first is the first element of a list.
func first(t *testing.T, value any) any {
	t.Helper()
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		t.Fatalf("no list, or an empty one: %v", value)
	}
	return list[0]
}

func TestDocumentsHaveWhatTheContractPromises(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	name := g.volumeName("vda")

	volume := mustBe(t, "volume", h.document(t, "volume", "volume", "show", name))
	mustBe(t, "location", volume["location"])
	mustBe(t, "attachment", first(t, volume["attachments"]))
	mustBe(t, "volume", first(t, h.document(t, "volumes", "volume", "list")))
	instance := mustBe(t, "instance", h.document(t, "instance", "instance", "show", g.Name))
	mustBe(t, "mapping", first(t, instance["block_device_mappings"]))
	mustBe(t, "instance", first(t, h.document(t, "instances", "instance", "list")))
	if instance["id"] != g.UUID || instance["state"] != "stopped" {
		t.Errorf("instance is %v %v, want %s stopped", instance["id"], instance["state"], g.UUID)
	}

	v := g.start(t, "vda", "--to-pool", "b")
	m := mustBe(t, "migration", h.document(t, "migration", "migration", "show", v.ID))
	mustBe(t, "location", m["src"])
	mustBe(t, "location", m["dst"])
	mustBe(t, "stall_ms", m["stall_ms"])
	mustBe(t, "migration", first(t, h.document(t, "migrations", "migration", "list")))
	mustBe(t, "which", h.document(t, "which", "volume", "which", name))

	// While it is on the way it has both attachments, of one volume.
	states := []string{}
	for _, id := range []string{v.SrcAttachmentID, v.DstAttachmentID} {
		att := mustBe(t, "attachment", h.document(t, "attachment", "attachment", "show", id))
		if att["volume_id"] != volume["id"] || att["instance_id"] != g.UUID {
			t.Errorf("attachment of another volume or instance: %v", att)
		}
		states = append(states, fmt.Sprint(att["state"]))
	}
	if !slices.Equal(states, []string{"attached", "reserved"}) {
		t.Errorf("attachments are %v, want attached and reserved", states)
	}
	v.copy(t)
	v.complete(t)
	g.assertSettled(t)
}
