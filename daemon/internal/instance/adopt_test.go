// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// The ids of two domains.
const (
	domainA = "6f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11"
	domainB = "0c0f7a52-3a0e-4c57-8f3e-7a1de7a1bb22"
)

const here = "10000000-0000-4000-8000-000000000001"

// site is a registry in memory, with the parts that adoption uses.
type site struct {
	volumes    []api.Volume
	instances  []api.Instance
	registered []api.InstanceRegister
	migrations []api.Migration
}

func (s *site) Volumes(context.Context) ([]api.Volume, error)     { return s.volumes, nil }
func (s *site) Instances(context.Context) ([]api.Instance, error) { return s.instances, nil }

func (s *site) Migrations(context.Context, string, bool) ([]api.Migration, error) {
	return s.migrations, nil
}

// EachVolume implements location.Site.
func (s *site) EachVolume(ctx context.Context, do func(*api.Volume) error) error {
	return hosttest.Each(s.Volumes(ctx))(do)
}

// EachOpenMigration implements location.Site.
func (s *site) EachOpenMigration(ctx context.Context, do func(*api.Migration) error) error {
	return hosttest.Each(s.Migrations(ctx, "", false))(do)
}

func (s *site) RegisterInstance(_ context.Context, _ string, in api.InstanceRegister) (api.Instance, error) {
	inst := api.Instance{ID: in.ID, Name: in.Name, Host: "alpha"}
	s.registered, s.instances = append(s.registered, in), append(s.instances, inst)
	return inst, nil
}

// images returns the directory of a pool. Only the fake creates images in it.
func images() string { return os.TempDir() }

// newAdopter returns an adopter on a host with two domains, web and db, with disks in a pool.
func newAdopter(t *testing.T, s *site) *Adopter {
	t.Helper()
	f := hvtest.New()
	f.AddPool(hv.PoolInfo{Name: "images", Type: "dir", Path: images(), Active: true})
	for name, id := range map[string]string{"web": domainA, "db": domainB} {
		path := filepath.Join(images(), name+".raw")
		if err := f.CreateImage(path, hvtest.Raw, 8*hvtest.BlockSize); err != nil {
			t.Fatal(err)
		}
		disk := hv.Disk{Target: "vda", Bus: "virtio", Device: "disk", Terminated: true, Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}}}
		if err := f.Define(hv.Domain{ID: id, Name: name, Config: []hv.Disk{disk}}); err != nil {
			t.Fatal(err)
		}
	}
	inspect := func(_ context.Context, path string, format api.Format) (api.Location, error) {
		return api.Location{Path: path, Format: format, SizeBytes: 8 * hvtest.BlockSize}, nil
	}
	return &Adopter{HV: f, Registry: s, Inspect: inspect, HostID: here, HostName: "alpha", Claims: &location.Claims{Site: s, Pools: f.Pools, HostID: here, HostName: "alpha"}, Rules: location.Rules{Storage: f}}
}

func TestAdoptingAgainSaysSo(t *testing.T) {
	s := &site{}
	a := newAdopter(t, s)
	for n, want := range []bool{false, true} {
		inst, already, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"})
		if err != nil || already != want || inst.ID != domainA {
			t.Errorf("time %d: %+v, already %t (%v)", n+1, inst, already, err)
		}
	}
	all, already, err := a.AdoptAll(t.Context(), "op", api.InstanceAdopt{All: true})
	if err != nil || len(all) != 2 || !slices.Equal(already, []string{"web"}) {
		t.Errorf("all: %d instances, already %v (%v)", len(all), already, err)
	}
	if len(s.registered) != 2 {
		t.Errorf("%d instances were registered, want 2", len(s.registered))
	}
}

// An attach takes only the path in the pool, but the path in the definition stays.
func TestADiskBehindALinkInItsPoolIsNoVolumeAndTheNoteNamesItsPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err := errors.Join(err, os.Symlink(".", dir+"/link"), os.WriteFile(dir+"/app.raw", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s := &site{}
	a := newAdopter(t, s)
	f, is := a.HV.(*hvtest.Fake)
	if !is {
		t.Fatalf("the host is %T", a.HV)
	}
	f.AddPool(hv.PoolInfo{Name: "real", Type: "dir", Path: dir, Active: true})
	for name, path := range map[string]string{"behind": dir + "/link/app.raw", "direct": dir + "/app.raw"} {
		disk := hv.Disk{Target: "vda", Bus: "virtio", Device: "disk", Terminated: true, Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}}}
		dom := hv.Domain{ID: uuid.NewString(), Name: name, Config: []hv.Disk{disk}}
		if err := errors.Join(f.CreateImage(path, hvtest.Raw, 8*hvtest.BlockSize), f.Define(dom)); err != nil {
			t.Fatal(err)
		}
		_, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: name})
		if err != nil {
			t.Fatal(err)
		}
		reg := s.registered[len(s.registered)-1]
		switch {
		case name == "direct" && (len(reg.Disks) != 1 || reg.Disks[0].Location.Pool != "real"):
			t.Errorf("a disk by the path of its pool: %+v", reg)
		case name == "behind" && (len(reg.Disks) != 0 || len(reg.Slots) != 1 || !strings.Contains(reg.Slots[0].Note, dir+"/app.raw")):
			t.Errorf("a disk behind a link: %+v", reg)
		}
		if err := f.Undefine(dom.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnInstanceOfAnotherHostIsNotTaken(t *testing.T) {
	a := newAdopter(t, &site{instances: []api.Instance{{ID: domainA, Name: "web", Host: "beta"}}})
	_, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"})
	if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "beta") {
		t.Errorf("got %v, want a conflict that names the other host", err)
	}
}

func TestAdoptionOfAllSaysWhereItStopped(t *testing.T) {
	s := &site{instances: []api.Instance{{ID: domainA, Name: "web", Host: "beta"}}}
	_, _, err := newAdopter(t, s).AdoptAll(t.Context(), "op", api.InstanceAdopt{All: true})
	if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "stopped at domain web") || !strings.Contains(err.Error(), fmt.Sprintf("the %d before it", len(s.registered))) {
		t.Errorf("got %v with %d registered", err, len(s.registered))
	}
}

func TestADiskThatIsTheBeginningOfAnExportIsAVolumeOfItsSize(t *testing.T) {
	const export = "nbd+unix:///web?socket=/run/nbd.sock"
	s := &site{}
	a := newAdopter(t, s)
	a.Rules.AllowedPaths = []string{"/run"}
	f, isFake := a.HV.(*hvtest.Fake)
	if !isFake {
		t.Fatal("no fake hypervisor")
	}
	disk := hv.Disk{Target: "vda", Bus: "virtio", Device: "disk", Terminated: true, Chain: []hv.Image{{
		Type: hv.SourceNetwork, Format: hvtest.Raw, Path: export, SliceBytes: 7 * hvtest.BlockSize,
	}}}
	if err := errors.Join(f.CreateImage(export, hvtest.Raw, 8*hvtest.BlockSize), f.UndefineDomain(t.Context(), domainA), f.Define(hv.Domain{ID: domainA, Name: "web", Config: []hv.Disk{disk}})); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"}); err != nil {
		t.Fatal(err)
	}
	want := api.Location{Path: export, Format: api.FormatRaw, SizeBytes: 7 * hvtest.BlockSize, ImageBytes: 8 * hvtest.BlockSize}
	if reg := s.registered[0]; len(reg.Disks) != 1 || reg.Disks[0].Location != want {
		t.Errorf("registered %+v", reg)
	}
}

func TestADiskAtAnExportIsAVolumeAndAnyOtherNetworkDiskSaysWhyItIsNone(t *testing.T) {
	const export = "nbd+unix:///web?socket=/run/nbd.sock"
	for path, allowed := range map[string]string{export: "/run", export + " not allowed": "/srv", "": "/run"} {
		s := &site{}
		a := newAdopter(t, s)
		a.Rules.AllowedPaths = []string{allowed}
		path, _, _ := strings.Cut(path, " ")
		f, isFake := a.HV.(*hvtest.Fake)
		if !isFake {
			t.Fatal("no fake hypervisor")
		}
		if err := f.CreateImage(path, hvtest.Raw, 8*hvtest.BlockSize); err != nil {
			t.Fatal(err)
		}
		disk := hv.Disk{Target: "vda", Bus: "virtio", Device: "disk", Terminated: true, Chain: []hv.Image{{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: path}}}
		if err := f.UndefineDomain(t.Context(), domainA); err != nil {
			t.Fatal(err)
		}
		if err := f.Define(hv.Domain{ID: domainA, Name: "web", Config: []hv.Disk{disk}}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"}); err != nil {
			t.Fatal(err)
		}
		reg := s.registered[0]
		switch {
		case path == export && allowed == "/run":
			if len(reg.Disks) != 1 || reg.Disks[0].Location != (api.Location{Path: export, Format: api.FormatRaw, SizeBytes: 8 * hvtest.BlockSize}) {
				t.Errorf("registered %+v", reg)
			}
		case path == export:
			if len(reg.Slots) != 1 || !strings.Contains(reg.Slots[0].Note, "allowed_paths") {
				t.Errorf("with its socket in no allowed place: %+v", reg)
			}
		default:
			if len(reg.Slots) != 1 || !strings.Contains(reg.Slots[0].Note, "reached over a network") {
				t.Errorf("another network disk: %+v", reg)
			}
		}
	}
}

// A guest would find ciphertext on a LUKS disk that is used as a raw one.
func TestADiskThatCannotBeCarriedIsNoVolumeAndSaysWhy(t *testing.T) {
	for says, edit := range map[string]func(*hv.Disk){
		"encrypted":                      func(d *hv.Disk) { d.Encrypted, d.Uncarried = true, "<encryption> in its <source>" },
		"<reservations> in its <source>": func(d *hv.Disk) { d.Uncarried = "<reservations> in its <source>" },
		"<transient/>":                   func(d *hv.Disk) { d.Transient = true },
	} {
		s := &site{}
		a := newAdopter(t, s)
		f, isFake := a.HV.(*hvtest.Fake)
		if !isFake {
			t.Fatal("no fake hypervisor")
		}
		dom, err := f.Domain(t.Context(), domainA)
		if err != nil {
			t.Fatal(err)
		}
		edit(&dom.Config[0])
		if err := f.UndefineDomain(t.Context(), domainA); err != nil {
			t.Fatal(err)
		}
		if err := f.Define(hv.Domain{ID: domainA, Name: "web", Config: dom.Config}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"}); err != nil {
			t.Fatal(err)
		}
		reg := s.registered[0]
		if len(reg.Disks) != 0 || len(reg.Slots) != 1 || !strings.Contains(reg.Slots[0].Note, says) {
			t.Errorf("%s: registered with %d volumes and slots %+v", says, len(reg.Disks), reg.Slots)
		}
	}
}

func TestALUKSContainerIsAVolumeWithItsSecret(t *testing.T) {
	const secret = "2f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11"
	const size = 8*hvtest.BlockSize + hvtest.HeaderBytes
	img := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: filepath.Join(images(), "web.raw"), LUKSSecret: secret}
	for name, c := range map[string]struct {
		img   hv.Image
		known *api.Location // the location that the registry has already
		note  string        // "" if it becomes a volume
	}{
		"new":                       {img: img},
		"known with this secret":    {img: img, known: &api.Location{Path: img.Path, Format: api.FormatRaw, SizeBytes: size, LUKSSecret: secret}},
		"known with another secret": {img: img, known: &api.Location{Path: img.Path, Format: api.FormatRaw, SizeBytes: size, LUKSSecret: here}, note: here},
		"known without a secret":    {img: img, known: &api.Location{Path: img.Path, Format: api.FormatRaw, SizeBytes: size}, note: "without a secret"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &site{}
			if c.known != nil {
				s.volumes = []api.Volume{{ID: here, Name: "known", Host: "alpha", Location: *c.known}}
			}
			a := newAdopter(t, s)
			f, isFake := a.HV.(*hvtest.Fake)
			if !isFake {
				t.Fatal("no fake hypervisor")
			}
			if err := errors.Join(f.UndefineDomain(t.Context(), domainA), f.Encrypt(img.Path, secret)); err != nil {
				t.Fatal(err)
			}
			disk := hv.Disk{Target: "vda", Bus: "virtio", Device: "disk", Terminated: true, Chain: []hv.Image{c.img}}
			if err := f.Define(hv.Domain{ID: domainA, Name: "web", Config: []hv.Disk{disk}}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"}); err != nil {
				t.Fatal(err)
			}
			switch reg := s.registered[0]; {
			case c.note != "" && (len(reg.Disks) != 0 || len(reg.Slots) != 1 || !strings.Contains(reg.Slots[0].Note, c.note)):
				t.Errorf("it became a volume, or the note is another: %+v", reg)
			case c.note == "" && (len(reg.Disks) != 1 || reg.Disks[0].Location.LUKSSecret != secret):
				t.Errorf("it did not become a volume with its secret: %+v", reg)
			}
		})
	}
}

func TestALUKSDiskInsideQcow2IsNoVolumeAndSaysWhy(t *testing.T) {
	d := hv.Disk{Target: "vda", Device: "disk", Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: "/a", LUKSSecret: domainA}}}
	_, why := newAdopter(t, &site{}).disk(t.Context(), &hv.Domain{Config: []hv.Disk{d}}, &d)
	if !strings.Contains(why, "inside an image of format qcow2") {
		t.Errorf("the note is %q", why)
	}
}

func TestADiskOfAPoolThatIsNotActiveIsNoVolumeAndSaysWhatToDo(t *testing.T) {
	d := hv.Disk{Target: "vda", Device: "disk", Chain: []hv.Image{{Type: "volume", Format: hvtest.Raw}}}
	_, why := newAdopter(t, &site{}).disk(t.Context(), &hv.Domain{Config: []hv.Disk{d}}, &d)
	if !strings.Contains(why, "virsh pool-start") {
		t.Errorf("the note is %q", why)
	}
}

// TestADiskOutsideTheAllowedPlacesBecomesASlot: the domain's other disks are adopted. A disk that
// became a volume before stays one.
func TestADiskOutsideTheAllowedPlacesBecomesASlot(t *testing.T) {
	elsewhere := func(a *Adopter) *hvtest.Fake {
		f, isFake := a.HV.(*hvtest.Fake)
		if !isFake {
			t.Fatal("the hypervisor is no fake")
		}
		f.AddPool(hv.PoolInfo{Name: "images", Type: "dir", Path: "/srv", Active: true})
		return f
	}
	path := filepath.Join(images(), "web.raw")
	t.Run("new", func(t *testing.T) {
		s := &site{}
		a := newAdopter(t, s)
		elsewhere(a)
		if _, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"}); err != nil {
			t.Fatal(err)
		}
		reg := s.registered[0]
		if len(reg.Disks) != 0 || len(reg.Slots) != 1 || reg.Slots[0].Device != "vda" || reg.Slots[0].BootIndex == nil {
			t.Fatalf("registered %+v, want one slot", reg)
		}
		for _, want := range []string{"not a volume: ", path, "allowed_paths"} {
			if note := reg.Slots[0].Note; !strings.Contains(note, want) {
				t.Errorf("the note %q does not say %q", note, want)
			}
		}
	})
	t.Run("a volume already", func(t *testing.T) {
		s := &site{volumes: []api.Volume{{ID: "30000000-0000-4000-8000-000000000001", Name: "old", Host: "alpha", Location: api.Location{Path: path}}}}
		a := newAdopter(t, s)
		elsewhere(a)
		if _, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"}); err != nil {
			t.Fatal(err)
		}
		if reg := s.registered[0]; len(reg.Disks) != 1 || reg.Disks[0].VolumeName != "old" {
			t.Errorf("registered %+v, want the volume", reg)
		}
	})
	t.Run("libvirt goes away", func(t *testing.T) {
		s := &site{}
		a := newAdopter(t, s)
		a.Rules.Storage = away{}
		if _, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"}); api.CodeOf(err) != api.CodeHypervisorUnavailable || len(s.registered) != 0 {
			t.Errorf("got %v and %d registered, want hypervisor_unavailable and nothing", err, len(s.registered))
		}
	})
}

type away struct{ location.Storage }

func (away) Pools(context.Context) ([]hv.PoolInfo, error) { return nil, hv.ErrUnavailable }

// A process that does not share its disk would keep the other domain from starting.
func TestADiskIsSharedOnlyIfDefinitionAndProcessSaySo(t *testing.T) {
	for name, c := range map[string]struct {
		config, live, want bool
	}{"both": {true, true, true}, "the definition alone": {true, false, false}, "the process alone": {false, true, false}} {
		disk := hv.Disk{Target: "vda", Shareable: c.config}
		dom := &hv.Domain{State: hv.StateRunning, Live: []hv.Disk{{Target: "vda", Shareable: c.live}}}
		if got := isShared(dom, &disk); got != c.want {
			t.Errorf("%s: shared %t, want %t", name, got, c.want)
		}
	}
	s := &site{}
	if _, _, err := newAdopter(t, s).Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web", Type: "clustered"}); err != nil {
		t.Fatal(err)
	}
	if d := s.registered[0].Disks[0]; d.Type != "clustered" || d.Shareable {
		t.Errorf("registered %+v, want the type that was asked for and no sharing", d)
	}
}

// Each host has its own directory of this name, unless the pool is shared.
func TestAPathMeansItsVolumeOnItsOwnHostOrInASharedPool(t *testing.T) {
	const id = "30000000-0000-4000-8000-000000000001"
	for name, c := range map[string]struct {
		host   string
		shared []string
		found  bool
	}{
		"of this host": {"alpha", nil, true}, "of another host": {"beta", nil, false}, "in a shared pool": {"beta", []string{"images"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &site{volumes: []api.Volume{{ID: id, Name: "old", Host: c.host, Location: api.Location{Pool: "images", Name: "web.raw", Path: filepath.Join(images(), "web.raw")}}}}
			a := newAdopter(t, s)
			a.Claims.SharedPools = c.shared
			if _, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"}); err != nil {
				t.Fatal(err)
			}
			if got := s.registered[0].Disks[0].VolumeID; (got == id) != c.found {
				t.Errorf("the disk is volume %s", got)
			}
		})
	}
}

// TestADiskThatIsAVolumeByAnotherNameIsThatVolume: so the registry refuses another instance's
// attachment, instead of having two volumes of one image.
func TestADiskThatIsAVolumeByAnotherNameIsThatVolume(t *testing.T) {
	dir := t.TempDir()
	image, alias := filepath.Join(dir, "web.raw"), filepath.Join(dir, "alias.raw")
	for _, err := range []error{os.WriteFile(image, nil, 0o600), os.Symlink(image, alias)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	at := api.Location{Path: image, Format: api.FormatRaw, SizeBytes: 8 * hvtest.BlockSize}
	for name, c := range map[string]struct {
		site  site
		code  api.Code
		is    string
		words string
	}{
		"a volume":                   {site: site{volumes: []api.Volume{{ID: domainB, Name: "web-vda", Host: "alpha", Location: at}}}, is: domainB},
		"another host's":             {site: site{volumes: []api.Volume{{ID: domainB, Name: "web-vda", Host: "beta", Location: at}}}},
		"a reserved destination":     {site: site{migrations: []api.Migration{{ID: "m1", VolumeName: "db", Host: "alpha", Dst: at}}}, code: api.CodeConflict, words: "destination of migration m1 of volume db"},
		"the source of another move": {site: site{migrations: []api.Migration{{ID: "m1", VolumeName: "db", Host: "alpha", Src: at}}}, code: api.CodeConflict, words: "source of migration m1"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAdopter(t, &c.site)
			f, isFake := a.HV.(*hvtest.Fake)
			if !isFake {
				t.Fatal("no fake hypervisor")
			}
			if err := f.CreateImage(alias, hvtest.Raw, 8*hvtest.BlockSize); err != nil {
				t.Fatal(err)
			}
			if err := f.Define(hv.Domain{ID: here, Name: "copy", Config: []hv.Disk{{
				Target: "vda", Device: "disk", Terminated: true, Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: alias}},
			}}}); err != nil {
				t.Fatal(err)
			}
			_, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "copy"})
			if api.CodeOf(err) != c.code || (err != nil && !strings.Contains(err.Error(), c.words)) {
				t.Fatalf("got %v, want code %q and %q", err, c.code, c.words)
			}
			if err != nil {
				return
			}
			if got := c.site.registered[0].Disks[0].VolumeID; (got == domainB) != (c.is == domainB) {
				t.Errorf("the disk is volume %s, want %q", got, c.is)
			}
		})
	}
}

// A LUN that has got a volume's path is not that volume, and becomes no volume while the registry
// has the volume at that path.
func TestADiskAtThePathOfAVolumeIsNotAdoptedIfItIsAnotherDevice(t *testing.T) {
	path := filepath.Join(images(), "web.raw")
	for _, c := range []struct {
		has, is string
		code    api.Code
	}{{"naa.6001405aa", "naa.6001405bb", api.CodeChainChanged}, {"naa.6001405aa", "mpath-36001405aa", ""}, {"", "naa.6001405bb", ""}} {
		s := &site{volumes: []api.Volume{{ID: domainB, Name: "web-vda", Host: "alpha", Location: api.Location{
			Path: path, Format: api.FormatRaw, SizeBytes: 8 * hvtest.BlockSize, Identity: c.has,
		}}}}
		a := newAdopter(t, s)
		a.Inspect = func(_ context.Context, path string, format api.Format) (api.Location, error) {
			return api.Location{Path: path, Format: format, SizeBytes: 8 * hvtest.BlockSize, Identity: c.is}, nil
		}
		_, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"})
		if api.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), "cannot adopt domain web with its disk vda: volume web-vda: ") {
			t.Errorf("%q at the path of %q: got %v, want code %q", c.is, c.has, err, c.code)
		}
	}
}

func TestAnImageThatAVolumeHasLeftIsAdoptedOnlyByForce(t *testing.T) {
	s := &site{}
	a := newAdopter(t, s)
	a.Adoptable = func(_ context.Context, path, verdict string) error {
		return api.Errorf(api.CodeConflict, "%s: %s is the source that volume db has left", verdict, path)
	}
	_, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"})
	for _, want := range []string{"cannot adopt domain web with its disk vda", "/web.raw is the source"} {
		if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want conflict that says %q", err, want)
		}
	}
	if len(s.registered) > 0 {
		t.Errorf("registered %+v", s.registered)
	}
	if _, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web", Force: true}); err != nil || len(s.registered) != 1 {
		t.Errorf("by force: %v, registered %+v", err, s.registered)
	}
	// The present image belongs to the volume, even if the volume has left that image before.
	s = &site{volumes: []api.Volume{{ID: "11111111-1111-4111-8111-111111111111", Name: "known", Host: here, Location: api.Location{Path: filepath.Join(images(), "web.raw"), Format: api.FormatRaw}}}}
	a = newAdopter(t, s)
	a.Adoptable = func(context.Context, string, string) error { return api.Errorf(api.CodeConflict, "asked") }
	if _, _, err := a.Adopt(t.Context(), "op", api.InstanceAdopt{Domain: "web"}); err != nil {
		t.Errorf("the image of a volume: %v", err)
	}
}
