// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/diskspec"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Registry has an adoption's calls of the registry.
type Registry interface {
	EachVolume(ctx context.Context, do func(*api.Volume) error) error
	Instances(ctx context.Context) ([]api.Instance, error)
	RegisterInstance(ctx context.Context, opID string, in api.InstanceRegister) (api.Instance, error)
}

// Inspect returns size and base images of an image of known format.
type Inspect func(ctx context.Context, path string, format api.Format) (api.Location, error)

// Adopter adopts the disks of existing domains: each becomes a volume with one attachment, at its
// location. Nothing on the host changes.
type Adopter struct {
	HV       Hypervisor
	Registry Registry
	Inspect  Inspect
	HostID   string
	HostName string
	Claims   *location.Claims
	// Rules limit where the images of new volumes may be.
	Rules location.Rules
	// Adoptable refuses an image that is the released source of a move of this host
	// (released.Sources). Its error begins with verdict. Adoptable is nil if this host has never
	// moved a volume.
	Adoptable func(ctx context.Context, path, verdict string) error
}

// Adopt registers the domain that in names. already is true if that was done before.
func (a *Adopter) Adopt(ctx context.Context, opID string, in api.InstanceAdopt) (inst api.Instance, already bool, err error) {
	doms, err := a.domains(ctx)
	if err != nil {
		return api.Instance{}, false, err
	}
	i := slices.IndexFunc(doms, func(d hv.Domain) bool { return d.Name == in.Domain || d.ID == strings.ToLower(in.Domain) })
	if i < 0 {
		return api.Instance{}, false, api.Errorf(api.CodeNotFound, "libvirt has no domain %s; `virsh list --all` shows them", in.Domain)
	}
	return a.adopt(ctx, opID, &doms[i], in)
}

// AdoptAll registers every unregistered domain of the host, and stops at the first failure. It
// returns all instances, and in already the names registered before.
func (a *Adopter) AdoptAll(ctx context.Context, opID string, in api.InstanceAdopt) (out []api.Instance, already []string, err error) {
	doms, err := a.domains(ctx)
	if err != nil {
		return nil, nil, err
	}
	out = []api.Instance{}
	for i := range doms {
		if !doms[i].Persistent {
			continue
		}
		inst, before, err := a.adopt(ctx, opID+"."+doms[i].ID, &doms[i], in)
		if err != nil {
			return nil, nil, stoppedAt(doms[i].Name, len(out), err)
		}
		out = append(out, inst)
		if before {
			already = append(already, inst.Name)
		}
	}
	return out, already, nil
}

func stoppedAt(domain string, before int, err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("adopt domain %s, the %d before it are adopted: %w", domain, before, err)
	}
	at := *e
	at.Message = fmt.Sprintf("stopped at domain %s: %s; the %d before it, by name, are adopted", domain, e.Message, before)
	return &at
}

func (a *Adopter) domains(ctx context.Context) ([]hv.Domain, error) {
	doms, err := a.HV.Domains(ctx)
	var unreadable *hv.Unreadable
	if errors.As(err, &unreadable) || errors.Is(err, hv.ErrUnavailable) { // it may share a disk with the adopted domain
		return nil, request.Refused(err)
	}
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	slices.SortFunc(doms, func(x, y hv.Domain) int { return cmp.Compare(x.Name, y.Name) })
	return doms, nil
}

func (a *Adopter) adopt(ctx context.Context, opID string, dom *hv.Domain, in api.InstanceAdopt) (inst api.Instance, already bool, err error) {
	known, err := a.Registry.Instances(ctx)
	if err != nil {
		return api.Instance{}, false, err
	}
	if i := slices.IndexFunc(known, func(k api.Instance) bool { return k.ID == dom.ID }); i >= 0 {
		if h := known[i].Host; h != a.HostID && h != a.HostName {
			return api.Instance{}, false, api.Errorf(api.CodeConflict, "cannot adopt domain %s: the registry has it as instance %s of host %s; forget it there first, if it is not there any more",
				dom.Name, known[i].Name, h)
		}
		return known[i], true, nil
	}
	if !dom.Persistent {
		return api.Instance{}, false, api.Errorf(api.CodeStateForbidden, "cannot adopt domain %s: it is transient; define it first (virsh dumpxml, virsh define)", dom.Name)
	}
	err = a.Claims.Exclusive(func() error {
		inst, err = a.register(ctx, opID, dom, in)
		return err
	})
	return inst, false, err
}

func (a *Adopter) register(ctx context.Context, opID string, dom *hv.Domain, in api.InstanceAdopt) (api.Instance, error) {
	volumes := map[string]bool{}
	if err := a.Registry.EachVolume(ctx, func(v *api.Volume) error { volumes[v.ID] = true; return nil }); err != nil {
		return api.Instance{}, err
	}
	look, err := a.Claims.Look(ctx)
	if err != nil {
		return api.Instance{}, err
	}
	state, _ := Reported(dom)
	reg := api.InstanceRegister{ID: dom.ID, Name: dom.Name, Host: a.HostID, State: state}
	boot := BootIndexes(dom.Config)
	for i := range dom.Config {
		d := &dom.Config[i]
		disk, why := a.disk(ctx, dom, d)
		if why == "" {
			disk.BootIndex, disk.Type = boot[d.Target], in.Type
			if why, err = a.findPool(ctx, &disk); err != nil {
				return api.Instance{}, fmt.Errorf("find the pool of disk %s: %w", d.Target, err)
			}
		}
		if why == "" {
			if why, err = a.place(ctx, &disk, dom, d, look, volumes, in.Force); err != nil {
				return api.Instance{}, err
			}
		}
		if why != "" {
			reg.Slots = append(reg.Slots, api.BlockDeviceMapping{Device: d.Target, BootIndex: boot[d.Target], Note: why})
			continue
		}
		reg.Disks = append(reg.Disks, disk)
	}
	return a.Registry.RegisterInstance(ctx, opID, reg)
}

// findPool sets a disk's pool. why is set if the definition must first name the pool's path of the
// image.
func (a *Adopter) findPool(ctx context.Context, disk *api.AdoptedDisk) (why string, err error) {
	named := disk.Location.Path
	if disk.Location, err = location.InPool(ctx, a.HV, disk.Location); err != nil || disk.Location.Path == named {
		return "", err
	}
	return fmt.Sprintf("not a volume: its definition names it %s, and in the directory of pool %s it is %s, which other hosts find too; have the definition name that path, and adopt it then",
		named, disk.Location.Pool, disk.Location.Path), nil
}

func (a *Adopter) disk(ctx context.Context, dom *hv.Domain, d *hv.Disk) (api.AdoptedDisk, string) {
	top := d.Top()
	switch {
	case d.Device != "disk":
		return api.AdoptedDisk{}, "not a volume: it is a " + d.Device
	case top.Type == "volume":
		return api.AdoptedDisk{}, "not a volume: libvirt knows no file or device for what it names by a pool: the pool is not active (virsh pool-start), has nothing of that name (virsh pool-refresh, vol-list), or is one that only QEMU reaches"
	case top.Type == hv.SourceNetwork && top.Path == "":
		return api.AdoptedDisk{}, noAddress
	case top.Type != hv.SourceFile && top.Type != hv.SourceBlock && top.Type != hv.SourceNetwork:
		return api.AdoptedDisk{}, "not a volume: its source is of type " + cmp.Or(top.Type, "none")
	case !api.Format(top.Format).Valid():
		return api.AdoptedDisk{}, "not a volume: its format is " + top.Format
	case d.Encrypted:
		return api.AdoptedDisk{}, "not a volume: it is encrypted by QEMU in a way that is not kept with a volume; what is kept is <encryption format='luks'> in the <source> of a file or device, with one passphrase <secret> by its uuid, and no <slices>"
	case d.IsLUKS() && top.Format != string(api.FormatRaw):
		return api.AdoptedDisk{}, "not a volume: it is encrypted by QEMU (LUKS) inside an image of format " + top.Format + ", and of such disks only raw ones become volumes"
	case d.Uncarried != "":
		return api.AdoptedDisk{}, "not a volume: it has " + d.Uncarried + ", which a detach or a move would lose"
	case d.Slices, top.SliceBytes%512 != 0:
		return api.AdoptedDisk{}, "not a volume: it is a part of its image (<slices>) that is not its beginning in whole sectors"
	case d.Transient:
		return api.AdoptedDisk{}, "not a volume: it is <transient/>: its writes are thrown away at shutdown"
	}
	live := dom.LiveDisk(d.Target)
	if dom.State.Active() && (live == nil || live.Top() != top) {
		return api.AdoptedDisk{}, "not a volume: the running domain uses another image than its definition names"
	}
	l, err := a.Inspect(ctx, top.Path, api.Format(top.Format))
	if err != nil {
		return api.AdoptedDisk{}, "not a volume: " + err.Error()
	}
	l.LUKSSecret = top.LUKSSecret
	switch {
	case top.SliceBytes != 0 && top.SliceBytes >= l.SizeBytes:
		return api.AdoptedDisk{}, "not a volume: its <slices> are as large as its image, or larger; take them out of the definition"
	case top.SliceBytes != 0:
		l.SizeBytes, l.ImageBytes = top.SliceBytes, l.SizeBytes
	}
	for _, disk := range []*hv.Disk{d, live} {
		if disk != nil && !location.HasVolume(disk, l, top.Type == hv.SourceBlock) {
			return api.AdoptedDisk{}, "not a volume: " + otherChain(disk, l)
		}
	}
	return api.AdoptedDisk{
		AttachmentID: uuid.NewString(), Device: d.Target, Mode: diskspec.ModeOf(d), Shareable: isShared(dom, d), Location: l,
	}, ""
}

const noAddress = "not a volume: it is reached over a network, and of such disks only these become volumes: " +
	"exports of an NBD server at a Unix socket of this host or over TCP, without TLS, secrets or other settings in the <source>, and with letters, digits and . _ - + : @ / in their names; " +
	"RBD images of a Ceph cluster of rbd_clusters in volferryd.toml, with the very monitors, user and secret (by its uuid) that are listed there, with letters, digits and . _ - + in their names, and with no snapshot, configuration file, encryption or other setting in the <source>"

// otherChain returns how a disk's chain differs from its image's header. With a difference it is
// unknown which chain has the guest's writes.
func otherChain(d *hv.Disk, l api.Location) string {
	names := func(images []string) string { return cmp.Or(strings.Join(images, ", "), "none") }
	var stated, written []string
	for _, img := range d.Chain[1:] {
		stated = append(stated, fmt.Sprintf("%s (%s)", img.Path, img.Format))
	}
	for _, b := range l.Backing.Images() {
		written = append(written, fmt.Sprintf("%s (%s)", b.Path, b.Format))
	}
	return fmt.Sprintf("its domain has it over other images (<backingStore>: %s) than its header names (%s); make both the same", names(stated), names(written))
}

// place gives the disk its volume (identify). why is set if no image at this location can become a
// volume.
func (a *Adopter) place(ctx context.Context, disk *api.AdoptedDisk, dom *hv.Domain, d *hv.Disk, look *location.Look, volumes map[string]bool, force bool) (why string, err error) {
	if why, err = bases(look, disk.Location); why != "" || err != nil {
		return why, err
	}
	secret := disk.Location.LUKSSecret
	known, err := identify(disk, dom, d, look, volumes)
	if err == nil && disk.Location.LUKSSecret != secret {
		return fmt.Sprintf("not a volume: its domain opens it %s, and the registry has volume %s, which it is, as one that is opened %s; change the definition, or, if that is right, forget the volume (`%s`) and the instance, and adopt this again",
			openedWith(secret), disk.VolumeName, openedWith(disk.Location.LUKSSecret), shell.Line("volferryctl", "volume", "forget", disk.VolumeName)), nil
	}
	if err == nil && !known && !force && a.Adoptable != nil {
		err = a.Adoptable(ctx, disk.Location.Path, fmt.Sprintf("cannot adopt domain %s with its disk %s", dom.Name, d.Target))
	}
	if err != nil {
		return "", err
	}
	return a.outside(ctx, disk.Location, known)
}

func openedWith(luksSecret string) string {
	if luksSecret == "" {
		return "without a secret"
	}
	return "as LUKS with the secret " + luksSecret
}

// bases returns why the image cannot become a volume because of base images, or "": no program may
// write a base image, and a volume's base image may not be another volume.
func bases(look *location.Look, l api.Location) (string, error) {
	holder, err := look.Holder(l.Path, location.Self{})
	if err == nil && holder.BaseOf != nil {
		return "not a volume: " + l.Path + " " + holder.Words, nil
	}
	var base string
	if err == nil {
		base, holder, err = look.BasesHolder(l)
	}
	if err == nil && base != "" {
		return "not a volume: its base image " + base + " " + holder.Words, nil
	}
	if errors.Is(err, location.ErrCannotTell) {
		return "", nil // identify refuses it
	}
	return "", err
}

// outside returns why no volume may be at this location, or "". A known volume may stay at its
// location.
func (a *Adopter) outside(ctx context.Context, l api.Location, known bool) (string, error) {
	if known {
		return "", nil
	}
	err := a.Rules.CheckPlaces(ctx, l)
	if err == nil || api.CodeOf(err) == api.CodeHypervisorUnavailable {
		return "", err
	}
	return "not a volume: " + err.Error(), nil
}

func isShared(dom *hv.Domain, d *hv.Disk) bool {
	live := dom.LiveDisk(d.Target)
	return d.Shareable && (live == nil || live.Shareable)
}

// identify gives the disk its volume. If the image is a known volume, by any path, the disk gets
// that volume. A new volume's id is the disk's serial, if the serial is a UUID that no volume has.
// identify refuses an image that is in use otherwise.
func identify(disk *api.AdoptedDisk, dom *hv.Domain, d *hv.Disk, look *location.Look, volumes map[string]bool) (known bool, err error) {
	path := disk.Location.Path
	holder, err := look.Holder(path, location.Self{})
	switch {
	case err != nil:
		return false, api.Errorf(api.CodeStateForbidden, "cannot adopt domain %s: whose image %s, its disk %s, is: %v", dom.Name, path, d.Target, err)
	case holder.Volume != nil:
		v := holder.Volume
		verdict := fmt.Sprintf("cannot adopt domain %s with its disk %s: volume %s", dom.Name, d.Target, v.Name)
		if err := image.CheckIdentity(v.Location, disk.Location.Identity); err != nil {
			return false, image.Prefixed(verdict, err)
		}
		disk.VolumeID, disk.VolumeName, disk.Location = v.ID, v.Name, v.Location
		return true, nil
	case holder.Words != "":
		return false, api.Errorf(api.CodeConflict, "cannot adopt domain %s: its disk %s, %s, %s", dom.Name, d.Target, path, holder.Words)
	}
	disk.VolumeID = uuid.NewString()
	if id, err := uuid.Parse(d.Serial); err == nil && !volumes[id.String()] {
		disk.VolumeID = id.String()
	}
	disk.VolumeName = volumeName(dom, d.Target)
	return false, nil
}

// BootIndexes returns the boot order of a definition's disks, from 0, by target. Without <boot
// order=> the first disk boots, as in libvirt.
func BootIndexes(disks []hv.Disk) map[string]*int {
	out := map[string]*int{}
	ordered := false
	for _, d := range disks {
		if d.BootOrder > 0 {
			n := d.BootOrder - 1
			out[d.Target], ordered = &n, true
		}
	}
	if ordered {
		return out
	}
	for _, d := range disks {
		if d.Device == "disk" {
			zero := 0
			out[d.Target] = &zero
			break
		}
	}
	return out
}

// Reported returns the state of an instance for a report. For an asleep or crashed guest the state
// is paused, so that the registry's rules are the same for all paused instances, and standstill
// has the exact state.
func Reported(dom *hv.Domain) (state, standstill api.InstanceState) {
	state = StateOf(dom)
	if state.Standstill() {
		return api.InstancePaused, state
	}
	return state, ""
}

// StateOf returns an instance's state by its domain.
func StateOf(dom *hv.Domain) api.InstanceState {
	switch dom.State {
	case hv.StateRunning:
		return api.InstanceRunning
	case hv.StatePaused:
		return api.InstancePaused
	case hv.StateStopped:
		return api.InstanceStopped
	case hv.StateOther:
	}
	switch dom.PauseReason {
	case hv.PauseAsleep:
		return api.InstanceAsleep
	case hv.PauseCrashed:
		return api.InstanceCrashed
	case hv.PauseUser, hv.PauseIOError, hv.PauseOther:
	}
	return api.InstanceError
}

// Hypervisor has an adoption's calls of hv.Hypervisor.
type Hypervisor interface {
	Domains(ctx context.Context) ([]hv.Domain, error)
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
	LookupVolume(ctx context.Context, pool, name string) (*hv.PoolVolume, error)
}
