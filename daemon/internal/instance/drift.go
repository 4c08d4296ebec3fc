// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Drift is the difference between an instance's domain and the registry's record.
type Drift struct {
	// Note describes the difference and its remedy to a person.
	Note string
	// Differs is true if the domain's disks are not at the volumes' locations.
	Differs bool
	// Misnamed is true if the domain is off and its definition names other images than its
	// volumes': `volferryctl instance repair` changes that.
	Misnamed bool
	// Gone is true if the domain does not exist.
	Gone bool
	// Elsewhere is true if the guest was moved to another host, where it may run.
	Elsewhere bool
	// NoRoot is true if neither the root slot nor the definition has a root disk. The domain must
	// be guarded (guard.OwnerRoot, RootReason).
	NoRoot bool
}

// DriftOf compares an instance's domain with the registry's record. dom is nil if the domain does
// not exist. The caller omits attachments that are being changed.
func DriftOf(inst api.Instance, dom *hv.Domain, atts []api.Attachment) Drift {
	switch {
	case inst.State.OnShelf():
		return Drift{}
	case dom == nil:
		return Drift{Gone: true, Note: printable(fmt.Sprintf(
			"its domain is gone from this host: somebody has undefined it, or moved it to another one. Where its guest runs on no other host, define it again (virsh define), or `%s` if it is not to come back", shell.Line("volferryctl", "instance", "forget", inst.Name)))}
	}
	if err := request.AtHome("nothing is done here", dom); err != nil {
		return Drift{Elsewhere: true, Note: printable(err.Error())}
	}
	what := subject.Differs(dom, atts)
	differs := what != "" && dom.Persistent
	return Drift{Note: printable(what), Differs: differs, Misnamed: differs && !dom.State.Active() && hasDisks(dom, atts), NoRoot: noRootIn(inst, dom)}
}

// hasDisks reports whether the definition has a disk for each attachment.
func hasDisks(dom *hv.Domain, atts []api.Attachment) bool {
	return !slices.ContainsFunc(atts, func(a api.Attachment) bool {
		return a.State == api.AttachmentAttached && dom.ConfigDisk(a.Device) == nil
	})
}

// Remark returns a Drift with a note, but without a difference.
func Remark(text string) Drift { return Drift{Note: printable(text)} }

// UnderAnotherID returns the note about an instance without a domain if a domain of its name has
// another UUID, as after `virsh define` without a UUID.
func UnderAnotherID(inst api.Instance, dom *hv.Domain) string {
	return printable(fmt.Sprintf("a domain of its name is defined, with UUID %s and not %s: to libvirt and to Volferry it is another domain, which nothing here guards or moves. If it is the same guest, give it its UUID back: shut it down, `%s`, put <uuid>%s</uuid> into what that prints, `%s`, and `virsh define` the file",
		dom.ID, inst.ID, shell.Line("virsh", "dumpxml", "--inactive", "--", dom.Name), inst.ID, shell.Line("virsh", "undefine", "--keep-nvram", "--", dom.Name)))
}

// Unreadable returns the note about an unreadable domain.
func Unreadable(dom hv.UnreadableDomain) string {
	return printable(fmt.Sprintf("libvirt cannot tell what its domain is like: %v; until it can (`%s`), nothing is begun on this host that another domain may be in the way of", dom.Err, shell.Line("virsh", "dumpxml", "--", dom.Name)))
}

func noRootIn(inst api.Instance, dom *hv.Domain) bool {
	return inst.LacksRoot() && dom.Persistent && dom.ConfigDisk(inst.RootSlot().Device) == nil
}

// maxNote is the registry's limit of a note, in characters: users of virsh choose the names and
// paths in it.
const maxNote = 1000

func printable(note string) string {
	runes := []rune(strings.ToValidUTF8(note, "?"))
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = '?'
		}
	}
	return string(runes[:min(len(runes), maxNote)])
}

// RootReason is the reason in the guard of an instance without a root volume (guard.OwnerRoot).
func RootReason(name string) string { return subject.NoRoot("start", name).Message }
