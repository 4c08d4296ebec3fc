// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
)

type definition struct {
	ID          string
	Name        string
	MemoryBytes int64
	Config      []hv.Disk
	LeansOn     string `json:",omitempty"`
}

// SetNVRAM writes the UEFI variables of a guest, as its firmware does.
func (f *Fake) SetNVRAM(id string, variables []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nvram[id] = bytes.Clone(variables)
}

// NVRAM reads the file with the UEFI variables of a guest, which may have no domain here any more.
func (f *Fake) NVRAM(id string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.nvram[id])
}

// SetLeansOn makes a domain depend on something of its host, such as a passed-through device. An
// empty text undoes that.
func (f *Fake) SetLeansOn(id, what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err != nil {
		return err
	}
	dom.leansOn = what
	return nil
}

// DomainDefinition implements hv.Hypervisor.
func (f *Fake) DomainDefinition(ctx context.Context, id string) (hv.DomainDefinition, error) {
	var def hv.DomainDefinition
	err := f.call(ctx, "DomainDefinition", func() error {
		dom, err := f.find(id)
		if err != nil {
			return err
		}
		if !dom.Persistent {
			return fmt.Errorf("%w: the domain is transient", hv.ErrUnsupported)
		}
		d := definition{dom.ID, dom.Name, dom.MemoryBytes, dom.Config, dom.leansOn}
		if err := d.checkPortable(); err != nil {
			return err
		}
		text, err := json.Marshal(d)
		if err != nil {
			return err
		}
		def = hv.DomainDefinition{Domain: string(text), NVRAM: bytes.Clone(f.nvram[id]), Autostart: dom.Autostart}
		return nil
	})
	if err != nil {
		return hv.DomainDefinition{}, err
	}
	return def, nil
}

func (d *definition) checkPortable() error {
	if d.LeansOn != "" {
		return &hv.NotPortableError{Has: d.LeansOn}
	}
	for i := range d.Config {
		if disk := &d.Config[i]; isDrive(disk) && len(disk.Chain) > 0 {
			return fmt.Errorf("%w: %s is in drive %s; eject it", hv.ErrUnsupported, disk.Top().Path, disk.Target)
		}
	}
	return nil
}

func isDrive(disk *hv.Disk) bool { return disk.Device == "cdrom" || disk.Device == "floppy" }

// DefineDomain implements hv.Hypervisor. Like libvirt it opens no image.
func (f *Fake) DefineDomain(ctx context.Context, id string, def hv.DomainDefinition, disks []hv.DiskSpec) error {
	return f.call(ctx, "DefineDomain", func() error {
		var d definition
		if err := json.Unmarshal([]byte(def.Domain), &d); err != nil {
			return fmt.Errorf("parse definition of domain: %w", err)
		}
		if d.ID != id {
			return fmt.Errorf("the definition is of domain %s, not of %s", d.ID, id)
		}
		if err := d.checkPortable(); err != nil {
			return err
		}
		for _, other := range f.domains {
			if other.ID == d.ID || other.Name == d.Name {
				return fmt.Errorf("%w: domain %s (%s)", hv.ErrExists, other.Name, other.ID)
			}
		}
		if err := d.setDisks(disks); err != nil {
			return err
		}
		return f.define(d, def)
	})
}

// setDisks replaces all disks except the drives, and puts the new disks before the drives. Like
// libvirt it assigns addresses when it knows all explicit addresses.
func (d *definition) setDisks(specs []hv.DiskSpec) error {
	var placed, unplaced, disks []hv.Disk
	for _, spec := range specs {
		disk, err := diskOf(spec)
		if err != nil {
			return err
		}
		if disk.Address == "" {
			unplaced = append(unplaced, disk)
		} else {
			placed = append(placed, disk)
		}
	}
	drives := slices.DeleteFunc(d.Config, func(disk hv.Disk) bool { return !isDrive(&disk) })
	for _, disk := range slices.Concat(placed, unplaced) {
		if err := checkAttach(slices.Concat(disks, drives), &disk); err != nil {
			return err
		}
		disks = slices.Insert(disks, placeOf(disks, &disk), disk)
	}
	d.Config = slices.Concat(disks, drives)
	return nil
}

func (f *Fake) define(d definition, def hv.DomainDefinition) error {
	dom := newDomain(hv.Domain{
		ID: d.ID, Name: d.Name, MemoryBytes: d.MemoryBytes, Autostart: def.Autostart, Config: d.Config,
	})
	for i := range dom.Config {
		if disk := &dom.Config[i]; f.hasImages(disk) {
			if err := f.expect(dom, disk); err != nil {
				return err
			}
		}
	}
	if def.NVRAM != nil {
		f.nvram[d.ID] = bytes.Clone(def.NVRAM)
	}
	f.domains[d.ID] = dom
	f.lifecycle(dom, "defined")
	return nil
}

// UndefineDomain implements hv.Hypervisor.
func (f *Fake) UndefineDomain(ctx context.Context, id string) error {
	return f.call(ctx, "UndefineDomain", func() error {
		dom := f.domains[id]
		switch {
		case dom == nil:
			return nil
		case dom.State.Active():
			return hv.ErrActive
		case dom.ManagedSave || dom.Snapshots > 0 || dom.Checkpoints > 0:
			return fmt.Errorf("%w: the domain has a managed save image, snapshots or checkpoints", hv.ErrBusy)
		}
		delete(f.domains, id)
		f.lifecycle(dom, "undefined")
		return nil
	})
}
