// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

func files(disk string, paths ...string) (named []hv.DomainFile) {
	for _, p := range paths {
		named = append(named, hv.DomainFile{What: disk, Path: p})
	}
	return named
}

func pathsOf(uses []api.PoolUse) (paths []string) {
	for _, u := range uses {
		paths = append(paths, u.Domain+" "+u.What+" "+u.Path)
	}
	return paths
}

// usesIn returns the uses of an active pool p at /p.
func usesIn(doms []hv.Domain, atts []api.Attachment, seen *namedFiles) []string {
	pools := []api.Pool{{Name: "p", Type: "dir", Path: "/p", Active: true}, {Name: "q", Type: "dir", Path: "/q", Active: true}}
	addUses(pools, doms, nil, nil, attachmentsBy(atts, instanceOf), seen)
	boundUses(pools)
	return pathsOf(pools[0].Uses)
}

func attachmentAt(l api.Location) []api.Attachment {
	return []api.Attachment{{InstanceID: "1", Location: l, DiskAttachment: api.DiskAttachment{Device: "vda"}}}
}

func TestUsesOfAPoolAreTheFilesThereThatAreNoImagesOfAttachments(t *testing.T) {
	doms := []hv.Domain{
		{ID: "1", Name: "web", Files: slices.Concat(files("disk vda", "/var/ovl", "/p/web", "/p/webs base"), files("cdrom sda", "/p/a.iso"), files("nvram", "/p/VARS.fd"), files("kernel", "/boot/vmlinuz"))},
		{ID: "2", Name: "other", Files: slices.Concat(files("disk vda", "/p/sub/clone"), files("filesystem", "/p"))},
	}
	backing := api.NewBacking([]api.BaseImage{{Path: "/p/webs base", Format: api.FormatRaw}})
	got := usesIn(doms, attachmentAt(api.Location{Path: "/p/web", Backing: backing}), &namedFiles{})
	if want := []string{"other filesystem /p", "other disk vda /p/sub/clone", "web nvram /p/VARS.fd", "web cdrom sda /p/a.iso"}; !slices.Equal(got, want) {
		t.Errorf("uses = %q\nwant %q", got, want)
	}
}

// The disk has an attachment, but other images.
func TestAnImageThatIsNotTheOneOfItsAttachmentIsAUse(t *testing.T) {
	at := attachmentAt(api.Location{Path: "/other/web"})
	for name, image := range map[string][]string{
		"a snapshot over the volume":         {"/p/snap.qcow2", "/other/web"},
		"the image that the volume has left": {"/p/web"},
		"the destination of somebody's copy": {"/other/web", "/p/copy"},
	} {
		got := usesIn([]hv.Domain{{ID: "1", Name: "web", Files: files("disk vda", image...)}}, at, &namedFiles{})
		if len(got) != 1 || !strings.HasPrefix(got[0], "web disk vda /p/") {
			t.Errorf("%s: uses = %q", name, got)
		}
	}
}

func TestAVolumeThatIsNamedByItsPoolIsAUseOfThatPool(t *testing.T) {
	doms := []hv.Domain{{ID: "1", Name: "web", Files: []hv.DomainFile{{What: "disk vda", Pool: "p", Path: "mine"}, {What: "disk vdb", Pool: "p", Path: "theirs"}, {What: "disk vdc", Pool: "q", Path: "far"}}}}
	got := usesIn(doms, attachmentAt(api.Location{Pool: "p", Name: "mine", Path: "/p/mine"}), &namedFiles{})
	if want := []string{"web disk vdb theirs"}; !slices.Equal(got, want) {
		t.Errorf("uses = %q, want %q", got, want)
	}
}

func TestAFileThatIsInAPoolByALinkIsAUse(t *testing.T) {
	dir := t.TempDir()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(in("data"), 0o700), os.WriteFile(in("data/a.iso"), nil, 0o600), os.WriteFile(in("data/web"), nil, 0o600),
		os.Symlink("data", in("pool")), os.Symlink("data/a.iso", in("cd.iso"))); err != nil {
		t.Fatal(err)
	}
	doms := []hv.Domain{{ID: "1", Name: "web", Files: slices.Concat(files("cdrom sda", in("cd.iso")), files("disk vda", real+"/data/web"))}}
	atts := attachmentAt(api.Location{Path: in("pool/web")})
	pools := []api.Pool{{Name: "p", Type: "dir", Path: in("pool"), Active: true}}
	seen, err := new(fileLooker).look(t.Context(), pools, doms, atts, nil)
	if err != nil {
		t.Fatal(err)
	}
	addUses(pools, doms, nil, nil, attachmentsBy(atts, instanceOf), seen)
	if got, want := pathsOf(pools[0].Uses), []string{"web cdrom sda " + in("cd.iso")}; !slices.Equal(got, want) {
		t.Errorf("uses = %q, want %q", got, want)
	}
}

// libvirt does not report the images beneath the disk of a domain that is off.
func TestTheBaseImageOfADomainThatIsOffIsAUse(t *testing.T) {
	top := hv.Disk{Target: "vda", Device: "disk", Chain: []hv.Image{{Path: "/elsewhere/clone"}}}
	doms := []hv.Domain{{ID: "2", Name: "other", Config: []hv.Disk{top}, Files: files("disk vda", "/elsewhere/clone")}}
	got := usesIn(doms, nil, &namedFiles{beneath: map[string][]string{"/elsewhere/clone": {"/p/base"}}})
	if want := []string{"other disk vda /p/base"}; !slices.Equal(got, want) {
		t.Errorf("uses = %q, want %q", got, want)
	}
	got = usesIn(doms, nil, &namedFiles{unread: map[string]error{"/elsewhere/clone": errors.New("no answer")}})
	if want := []string{"other  "}; !slices.Equal(got, want) {
		t.Errorf("uses = %q, want %q", got, want)
	}
}

func TestOfAPoolThatIsNotActiveItIsNotKnownWhatIsNeeded(t *testing.T) {
	pools := []api.Pool{{Name: "p", Type: "dir", Path: "/p"}}
	addUses(pools, nil, nil, nil, nil, &namedFiles{})
	if u := pools[0].Uses; len(u) != 1 || !strings.Contains(u[0].Unknown, "not active") {
		t.Errorf("uses = %+v", u)
	}
}

func TestADomainThatCannotBeReadMayUseEveryPool(t *testing.T) {
	pools := []api.Pool{{Name: "p", Type: "dir", Path: "/p", Active: true}}
	addUses(pools, nil, []hv.UnreadableDomain{{ID: "1", Name: "odd\n", Err: errors.New(strings.Repeat("x", 1000))}}, nil, nil, &namedFiles{})
	if u := pools[0].Uses; len(u) != 1 || u[0].Unknown == "" || len(u[0].Unknown) > maxUseText || u[0].Domain != "odd\ufffd" {
		t.Errorf("uses = %+v", u)
	}
	addUses(pools, nil, nil, errors.New("libvirt is away"), nil, &namedFiles{})
	if u := pools[0].Uses; len(u) != 1 || u[0].Unknown != "libvirt is away" || u[0].Domain != "" {
		t.Errorf("uses of a host whose libvirt does not answer = %+v", u)
	}
}

// The registry itself finds volumes with a path that is literally below the pool's.
func TestAVolumeThatLeadsIntoAPoolByALinkIsAUse(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.MkdirAll(in("data/sub"), 0o700), os.WriteFile(in("data/sub/y"), nil, 0o600), os.WriteFile(in("data/z"), nil, 0o600), os.Symlink("data", in("link"))); err != nil {
		t.Fatal(err)
	}
	base := api.NewBacking([]api.BaseImage{{Path: in("link/z"), Format: api.FormatRaw}})
	attached := attachmentAt(api.Location{Path: in("link/sub/y")})
	attached[0].VolumeName = "y"
	u := &Uplink{Memory: &Memory{hostID: "h", view: View{Volumes: []api.Volume{
		{Name: "y", Host: "h", Location: attached[0].Location, Attachments: attached},
		{Name: "alone", Host: "h", Location: api.Location{Path: in("link/z")}},
		{Name: "clone", Host: "h", Location: api.Location{Path: "/elsewhere", Backing: base}},
		{Name: "inside", Host: "h", Location: api.Location{Pool: "p", Path: in("data/z")}},
		{Name: "twin", Host: "h", Location: api.Location{Pool: "q", Path: in("link/z")}},
		{Name: "below", Host: "h", Location: api.Location{Path: in("data/sub/y")}},
		{Name: "far", Host: "another host", Location: api.Location{Path: in("link/z")}},
	}}}}
	volumes := u.placedVolumes(attached)
	pools := []api.Pool{{Name: "p", Type: "dir", Path: in("data"), Active: true}, {Name: "q", Type: "dir", Path: in("link"), Active: true}}
	seen, err := new(fileLooker).look(t.Context(), pools, nil, attached, volumes)
	if err != nil {
		t.Fatal(err)
	}
	addVolumes(pools, volumes, seen)
	boundUses(pools)
	for i, want := range [][]string{
		{"alone " + in("link/z"), "clone " + in("link/z"), "twin " + in("link/z"), "y " + in("link/sub/y")},
		{"below " + in("data/sub/y"), "inside " + in("data/z")},
	} {
		var got []string
		for _, u := range pools[i].Uses {
			got = append(got, u.Volume+" "+u.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("pool %s: uses = %q\nwant %q", pools[i].Name, got, want)
		}
	}
}
