// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"os/user"
	"strconv"
	"strings"

	"github.com/beevik/etree"
	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
	"github.com/volferry/volferry/daemon/internal/libvirt/qemuconf"
)

// dac is libvirt's name for confinement by user and group.
const dac = "dac"

func (ps *guestProcesses) QEMUUser(ctx context.Context, id string) (hv.ProcessUser, error) {
	user, err := ps.qemuUser(ctx, id)
	if err != nil {
		return user, fmt.Errorf("find out as which user QEMU runs: %w", err)
	}
	return user, nil
}

func (ps *guestProcesses) qemuUser(ctx context.Context, id string) (user hv.ProcessUser, err error) {
	s, err := ps.connection.reads()
	if err != nil {
		return user, err
	}
	given, err := qemuconf.GivesImages(qemuconf.Path(ps.library.definitions))
	if err != nil {
		return user, err
	}
	own := false
	if id != "" {
		dom, err := lookup(ctx, s, id)
		if err != nil {
			return user, err
		}
		doc, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
			return lv.DomainGetXMLDesc(dom, 0)
		})
		if err != nil {
			return user, err
		}
		var relabels bool
		if user, own, relabels, err = ownUser(doc); err != nil {
			return user, err
		}
		given = given && relabels
	}
	if !own {
		user, err = ps.defaultUser(ctx, s)
	}
	user.Given = given
	return user, err
}

// defaultUser returns QEMU's user for domains that name none. It changes only with a restart of
// libvirtd.
func (ps *guestProcesses) defaultUser(ctx context.Context, s *session) (hv.ProcessUser, error) {
	if user := ps.qemuDefault.Load(); user != nil {
		return *user, nil
	}
	return ps.learnUser(ctx, s)
}

func (ps *guestProcesses) learnUser(ctx context.Context, s *session) (hv.ProcessUser, error) {
	caps, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
		return lv.ConnectGetCapabilities()
	})
	if err != nil {
		return hv.ProcessUser{}, err
	}
	user, err := userInCapabilities(caps)
	if err != nil {
		return user, err
	}
	ps.qemuDefault.Store(&user)
	return user, nil
}

// userInCapabilities reads the default label of the DAC driver. Each type of hypervisor has such a
// label; the first is used.
func userInCapabilities(caps string) (hv.ProcessUser, error) {
	doc := etree.NewDocument()
	if err := doc.ReadFromString(caps); err != nil {
		return hv.ProcessUser{}, fmt.Errorf("parse capabilities: %w", err)
	}
	for _, model := range doc.FindElements("/capabilities/host/secmodel") {
		if domainxml.TextIn(model, "model") == dac {
			return parseDACLabel(domainxml.TextIn(model, "baselabel"))
		}
	}
	// Without the driver, libvirtd is not root and runs QEMU as its own user.
	return hv.ProcessUser{}, fmt.Errorf("%w: libvirt does not confine QEMU by user and group", hv.ErrUnsupported)
}

// ownUser returns the user that a domain's XML names, if any, and whether libvirt may make that
// user the owner of images.
func ownUser(domain string) (user hv.ProcessUser, own, relabels bool, err error) {
	doc, err := domainxml.ParseDoc(domain)
	if err != nil {
		return user, false, false, err
	}
	relabels = true
	for _, label := range doc.Root().SelectElements("seclabel") {
		if label.SelectAttrValue("model", "") != dac {
			continue
		}
		relabels = label.SelectAttrValue("relabel", "yes") != "no"
		if text := domainxml.TextIn(label, "label"); text != "" {
			user, err = parseDACLabel(text)
			return user, true, relabels, err
		}
	}
	return user, false, relabels, nil
}

// parseDACLabel parses libvirt's notation +64055:+107, or an owner's names of user and group.
func parseDACLabel(label string) (hv.ProcessUser, error) {
	name, group, _ := strings.Cut(label, ":")
	uid, err := idOf(name, func(name string) (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
	if err != nil {
		return hv.ProcessUser{}, fmt.Errorf("read label %q: %w", label, err)
	}
	gid, err := idOf(group, func(name string) (string, error) {
		g, err := user.LookupGroup(name)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
	if err != nil {
		return hv.ProcessUser{}, fmt.Errorf("read label %q: %w", label, err)
	}
	return hv.ProcessUser{UID: uid, GID: gid}, nil
}

// idOf returns the id in a label: a number, also with +, or what lookup returns for a name.
func idOf(text string, lookup func(string) (string, error)) (uint32, error) {
	id, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 10, 32)
	if err == nil {
		return uint32(id), nil
	}
	found, err := lookup(text)
	if err != nil {
		return 0, err
	}
	id, err = strconv.ParseUint(found, 10, 32)
	return uint32(id), err
}
