// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

func (d *definitions) DomainDefinition(ctx context.Context, id string) (hv.DomainDefinition, error) {
	def, err := d.domainDefinition(ctx, id)
	if err != nil {
		return hv.DomainDefinition{}, fmt.Errorf("read definition of domain %s: %w", id, err)
	}
	return def, nil
}

func (d *definitions) domainDefinition(ctx context.Context, id string) (def hv.DomainDefinition, err error) {
	s, err := d.connection.reads()
	if err != nil {
		return def, err
	}
	dom, err := lookup(ctx, s, id)
	if err != nil {
		return def, err
	}
	// With the secrets: a console without its password would be open to everyone.
	if def.Domain, err = definitionXML(ctx, s, dom, golibvirt.DomainXMLSecure); err != nil {
		return def, err
	}
	doc, err := domainxml.ParseDoc(def.Domain)
	if err != nil {
		return def, err
	}
	if err := domainxml.CheckPortable(doc.Root()); err != nil {
		return def, err
	}
	if def.NVRAM, err = d.library.readNVRAM(doc.Root()); err != nil {
		return def, err
	}
	autostart, err := call(ctx, s, func(lv *golibvirt.Libvirt) (int32, error) {
		return lv.DomainGetAutostart(dom)
	})
	def.Autostart = autostart != 0
	return def, err
}

func (d *definitions) ParseDisk(definition string) (hv.Disk, error) {
	return domainxml.ParseDisk(definition, d.clusters)
}

func (d *definitions) DefineDomain(ctx context.Context, id string, def hv.DomainDefinition, disks []hv.DiskSpec) error {
	if err := d.defineDomain(ctx, id, def, disks); err != nil {
		return fmt.Errorf("define domain %s: %w", id, err)
	}
	return nil
}

func (d *definitions) defineDomain(ctx context.Context, id string, def hv.DomainDefinition, disks []hv.DiskSpec) error {
	n, err := domainxml.Localize(id, def, disks, d.clusters)
	if err != nil {
		return err
	}
	s, err := d.connection.changes()
	if err != nil {
		return err
	}
	// libvirt would replace the definition of an existing domain.
	if err := wantNoDomain(ctx, s, id, n.Name); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", hv.ErrUnavailable, context.Cause(ctx))
	}
	ctx = context.WithoutCancel(ctx) // see modify
	if def.NVRAM != nil {
		if err := d.library.writeNVRAM(n.NVRAM, def.NVRAM); err != nil {
			return err
		}
	}
	// With validation, because libvirt silently drops unknown elements of a newer libvirt.
	dom, err := changing(ctx, d.library, s, s.callTimeout, keptDefinitions, func(lv *golibvirt.Libvirt) (golibvirt.Domain, error) {
		return lv.DomainDefineXMLFlags(n.Doc, golibvirt.DomainDefineValidate)
	})
	if err != nil {
		return err
	}
	// libvirt's reading of the XML counts, not this program's.
	dump, err := definitionXML(ctx, s, dom, golibvirt.DomainXMLSecure)
	if err == nil {
		err = n.CheckDefined(dump)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("check what libvirt has defined: %w", err), d.UndefineDomain(ctx, id))
	}
	if !def.Autostart {
		return nil
	}
	_, err = changing(ctx, d.library, s, s.callTimeout, keptAutostart, func(lv *golibvirt.Libvirt) (none, error) {
		return none{}, lv.DomainSetAutostart(dom, 1)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("set autostart: %w", err), d.UndefineDomain(ctx, id))
	}
	return nil
}

func wantNoDomain(ctx context.Context, s *session, id, name string) error {
	_, byID := lookup(ctx, s, id)
	_, byName := call(ctx, s, func(lv *golibvirt.Libvirt) (golibvirt.Domain, error) {
		return lv.DomainLookupByName(name)
	})
	for what, err := range map[string]error{"id " + id: byID, "name " + name: byName} {
		if err == nil {
			return fmt.Errorf("%w: a domain with the %s", hv.ErrExists, what)
		}
		if !errors.Is(err, hv.ErrNotFound) {
			return err
		}
	}
	return nil
}

const keptOfDefinition = keptDefinitions | keptAutostart

// UndefineDomain implements hv.Hypervisor. Without the flags for managed save images, snapshots and
// checkpoints libvirt refuses a domain that has any.
func (d *definitions) UndefineDomain(ctx context.Context, id string) error {
	dom, err := d.domains.Domain(ctx, id)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		d.library.note(keptOfDefinition, nil) // even if another program undefined it
		return nil
	case err == nil && dom.State.Active():
		err = hv.ErrActive // libvirt would make it a transient domain
	case err == nil && (dom.ManagedSave || dom.Snapshots > 0 || dom.Checkpoints > 0):
		err = fmt.Errorf("%w: the domain has a managed save image, snapshots or checkpoints", hv.ErrBusy)
	}
	if err == nil {
		err = d.calls.modify(ctx, id, keptOfDefinition, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainUndefineFlags(dom, golibvirt.DomainUndefineKeepNvram)
		})
	}
	if err != nil && !errors.Is(err, hv.ErrNotFound) { // it may be gone by now
		return fmt.Errorf("undefine domain %s: %w", id, err)
	}
	return nil
}
