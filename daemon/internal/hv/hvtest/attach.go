// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// AttachDisk implements hv.Hypervisor. Like libvirt it opens no file for the persistent
// definition.
func (f *Fake) AttachDisk(ctx context.Context, id string, where hv.Where, spec hv.DiskSpec) error {
	return f.call(ctx, "AttachDisk", func() error {
		if dom := f.domains[id]; dom != nil {
			f.awaitStart(dom)
		}
		dom, disks, err := f.described(id, where)
		if err != nil {
			return err
		}
		if where == hv.Live {
			if err := dom.known(spec.Target); err != nil {
				return err
			}
		}
		disk, err := diskOf(spec)
		if err != nil {
			return err
		}
		reserved, err := reservedDisks(spec)
		if err != nil {
			return err
		}
		if err := checkAttach(slices.Concat(*disks, reserved), &disk); err != nil {
			return err
		}
		if where == hv.Live {
			if err := f.checkOpen(&disk); err != nil {
				f.makeRules(dom)
				return err
			}
			dom.plugged[disk.Target] = true
		}
		*disks = slices.Insert(*disks, placeOf(*disks, &disk), disk)
		if where == hv.Config {
			f.lifecycle(dom, "defined")
			if !f.hasImages(&disk) {
				return nil
			}
		}
		return f.expect(dom, &disk)
	})
}

func (f *Fake) described(id string, where hv.Where) (*domain, *[]hv.Disk, error) {
	dom, err := f.find(id)
	if err != nil {
		return nil, nil, err
	}
	switch where {
	case hv.Live:
		if !dom.State.Active() {
			return nil, nil, fmt.Errorf("%w: %s", hv.ErrNotActive, id)
		}
		return dom, &dom.Live, nil
	case hv.Config:
		if !dom.Persistent {
			return nil, nil, fmt.Errorf("%w: the domain is transient", hv.ErrUnsupported)
		}
		return dom, &dom.Config, nil
	}
	return nil, nil, fmt.Errorf("%w: description %q of a domain", hv.ErrUnsupported, where)
}

func diskOf(spec hv.DiskSpec) (hv.Disk, error) {
	if spec.Definition != "" {
		return definedDisk(spec.Definition, spec.Target)
	}
	if err := checkChain(spec.Chain()); err != nil {
		return hv.Disk{}, err
	}
	if spec.Slot != "" {
		return slotDisk(spec)
	}
	disk := hv.Disk{
		Target: spec.Target, Bus: spec.Bus, Device: "disk", Serial: spec.Serial,
		Chain: spec.Chain(), Terminated: true,
		ReadOnly: spec.ReadOnly, Shareable: spec.Shareable, BootOrder: spec.BootOrder, Cache: "none",
	}
	if !spec.ReadOnly {
		disk.Discard = "unmap"
	}
	return disk, nil
}

func definedDisk(definition, target string) (hv.Disk, error) {
	disk, err := parseDisk(definition)
	if err != nil {
		return hv.Disk{}, err
	}
	if disk.Target != target {
		return hv.Disk{}, fmt.Errorf("the definition is of disk %s, not of %s", disk.Target, target)
	}
	return disk, nil
}

func slotDisk(spec hv.DiskSpec) (hv.Disk, error) {
	disk, err := parseDisk(spec.Slot)
	if err != nil {
		return hv.Disk{}, err
	}
	if disk.Uncarried != "" {
		return hv.Disk{}, fmt.Errorf("%w: disk %s has %s", hv.ErrUnsupported, spec.Target, disk.Uncarried)
	}
	disk.Target = spec.Target
	if spec.NewAddress {
		disk.Address = ""
	}
	if spec.NoBootOrder {
		disk.BootOrder = 0
	}
	disk.Chain, disk.Terminated = spec.Chain(), true
	disk.ReadOnly, disk.Shareable = spec.ReadOnly, spec.Shareable
	if spec.Shareable {
		disk.Cache = "none"
	}
	if spec.Serial != "" {
		disk.Serial = spec.Serial
	}
	return disk, nil
}

func reservedDisks(spec hv.DiskSpec) ([]hv.Disk, error) {
	var disks []hv.Disk
	for _, definition := range spec.Reserved {
		disk, err := parseDisk(definition)
		if err != nil {
			return nil, err
		}
		disks = append(disks, disk)
	}
	return disks, nil
}

// checkAttach checks a new disk against the existing disks, as libvirt does, and gives a disk
// without an address the next free address.
func checkAttach(disks []hv.Disk, disk *hv.Disk) error {
	if disk.Shareable && disk.Top().Format != Raw {
		return fmt.Errorf("%w: shared access requires use of supported storage format", hv.ErrUnsupported)
	}
	if disk.Address == "" {
		disk.Address = freeAddress(disks, disk.Bus)
	}
	for i := range disks {
		switch other := &disks[i]; {
		case other.Target == disk.Target:
			return fmt.Errorf("%w: target %s", hv.ErrExists, disk.Target)
		case other.SamePlace(disk):
			return fmt.Errorf("%w: address %s", hv.ErrExists, disk.Address)
		case disk.BootOrder != 0 && other.BootOrder == disk.BootOrder:
			return fmt.Errorf("%w: boot order %d is used by another device", hv.ErrUnsupported, disk.BootOrder)
		}
	}
	return nil
}

func placeOf(disks []hv.Disk, disk *hv.Disk) int {
	at := slices.IndexFunc(disks, func(d hv.Disk) bool { return d.Bus == disk.Bus && d.Target > disk.Target })
	if at < 0 {
		return len(disks)
	}
	return at
}

func freeAddress(disks []hv.Disk, bus string) string {
	format, first := "drive:0:0:0:%d", 0
	if bus == "virtio" {
		const firstSlot = 4 // libvirt keeps the lower slots for its own devices
		format, first = "pci:0000:00:%02x.0", firstSlot
	}
	for n := first; ; n++ {
		address := fmt.Sprintf(format, n)
		if !slices.ContainsFunc(disks, func(d hv.Disk) bool { return d.SamePlace(&hv.Disk{Bus: bus, Address: address}) }) {
			return address
		}
	}
}

func (f *Fake) hasImages(disk *hv.Disk) bool {
	chain, err := f.startChain(*disk)
	if err == nil {
		_, err = f.read(chain)
	}
	return err == nil
}

// DetachDisk implements hv.Hypervisor.
func (f *Fake) DetachDisk(ctx context.Context, id string, where hv.Where, target string) error {
	return f.call(ctx, "DetachDisk", func() error {
		dom, err := f.find(id)
		if err != nil {
			return err
		}
		f.awaitStart(dom)
		if where == hv.Live && dom.State.Active() {
			if err := dom.known(target); err != nil {
				return err
			}
		}
		switch {
		case where == hv.Live && dom.LiveDisk(target) != nil:
			if dom.jobs[target] != nil {
				return fmt.Errorf("%w: the disk is in an active block job", hv.ErrBusy)
			}
			if err := dom.notInBackup(target); err != nil {
				return err
			}
			dom.leaving[target] = true
			f.answer(dom)
		case where == hv.Config && dom.ConfigDisk(target) != nil:
			dom.Config = slices.DeleteFunc(dom.Config, func(d hv.Disk) bool { return d.Target == target })
			dom.forget()
			f.lifecycle(dom, "defined")
		}
		return nil
	})
}

// DiskDefinition implements hv.Hypervisor.
func (f *Fake) DiskDefinition(ctx context.Context, id string, where hv.Where, target string) (string, error) {
	var definition []byte
	err := f.call(ctx, "DiskDefinition", func() error {
		_, disks, err := f.described(id, where)
		if err != nil {
			return err
		}
		disk := findDisk(*disks, target)
		if disk == nil {
			return fmt.Errorf("%w: %s disk %s of %s", hv.ErrNotFound, where, target, id)
		}
		definition, err = json.Marshal(disk)
		return err
	})
	if err != nil {
		return "", err
	}
	return string(definition), nil
}
