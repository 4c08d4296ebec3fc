// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// cloneSite has one linked clone, with a migration.
type cloneSite struct{ clone api.Location }

func (s cloneSite) Volumes(context.Context) ([]api.Volume, error) {
	return []api.Volume{{ID: "v1", Name: "web", Host: "here", Location: s.clone}}, nil
}

func (s cloneSite) Migrations(context.Context, string, bool) ([]api.Migration, error) {
	return []api.Migration{{ID: "m1", VolumeID: "v1", VolumeName: "web", Host: "here", Src: s.clone, Dst: api.Location{Path: "/nowhere/dst"}}}, nil
}

// EachVolume implements location.Site.
func (s cloneSite) EachVolume(ctx context.Context, do func(*api.Volume) error) error {
	return hosttest.Each(s.Volumes(ctx))(do)
}

// EachOpenMigration implements location.Site.
func (s cloneSite) EachOpenMigration(ctx context.Context, do func(*api.Migration) error) error {
	return hosttest.Each(s.Migrations(ctx, "", false))(do)
}

func TestABaseImageIsSpokenForButForOtherClones(t *testing.T) {
	base := "/nowhere/base"
	c := &location.Claims{
		Site:   cloneSite{api.Location{Path: "/nowhere/top", Backing: api.NewBacking([]api.BaseImage{{Path: base, Format: api.FormatRaw}})}},
		HostID: "here", Pools: func(context.Context) ([]hv.PoolInfo, error) { return nil, nil },
	}
	look, err := c.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, self := range []location.Self{{}, {VolumeID: "v1"}, {MigrationID: "m1"}} {
		if h, err := look.Holder(base, self); err != nil || h.BaseOf == nil || !strings.Contains(h.Words, "base image of volume web") {
			t.Errorf("%+v: %+v (%v), want that it is a base image", self, h, err)
		}
	}
	if h, err := look.BaseHolder(base); err != nil || h.Words != "" {
		t.Errorf("another clone may not have it: %+v (%v)", h, err)
	}
	if h, err := look.BaseHolder("/nowhere/top"); err != nil || h.Volume == nil {
		t.Errorf("a volume may be a base image: %+v (%v)", h, err)
	}
}

// movingSite has a volume with a migration that ends while a look reads the site.
type movingSite struct {
	cloneSite
	moved bool
}

func (s *movingSite) EachVolume(_ context.Context, do func(*api.Volume) error) error {
	v := api.Volume{ID: "v1", Name: "web", Host: "here", Location: api.Location{Path: "/nowhere/top"}}
	if s.moved {
		v.Location.Path = "/nowhere/dst"
	}
	s.moved = true
	return do(&v)
}

func (s *movingSite) EachOpenMigration(ctx context.Context, do func(*api.Migration) error) error {
	if s.moved {
		return nil
	}
	s.moved = true
	return s.cloneSite.EachOpenMigration(ctx, do)
}

func TestADestinationIsSpokenForThoughItsMoveEndsDuringTheLook(t *testing.T) {
	c := &location.Claims{Site: &movingSite{}, HostID: "here", Pools: func(context.Context) ([]hv.PoolInfo, error) { return nil, nil }}
	look, err := c.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if h, err := look.Holder("/nowhere/dst", location.Self{}); err != nil || h.Words == "" {
		t.Errorf("the place of the volume belongs to nobody: %+v (%v)", h, err)
	}
}

// tornSite is a registry that lists some volumes, and then fails.
type tornSite struct{ cloneSite }

func (s tornSite) EachVolume(ctx context.Context, do func(*api.Volume) error) error {
	return errors.Join(s.cloneSite.EachVolume(ctx, do), api.Errorf(api.CodeRegistryUnavailable, "away"))
}

func TestALookThatReadsOnlyAPartKnowsNothing(t *testing.T) {
	c := &location.Claims{Site: tornSite{}, HostID: "here", Pools: func(context.Context) ([]hv.PoolInfo, error) { return nil, nil }}
	if look, err := c.Look(t.Context()); err == nil || look != nil {
		t.Errorf("%+v (%v)", look, err)
	}
	taken := false
	_, err := c.Take(t.Context(), "/nowhere/free", location.Self{}, func() error { taken = true; return nil })
	if err == nil || taken {
		t.Errorf("an image was taken (%t, %v)", taken, err)
	}
}

func TestADiskIsOnItsChainAsFarAsItsDefinitionSays(t *testing.T) {
	top, base, other := hv.Image{Type: hv.SourceFile, Format: "qcow2", Path: "/a/top"}, hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/b/base"}, hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/c"}
	unclean := base
	unclean.Path = "/a/../b/base"
	for name, c := range map[string]struct {
		disk hv.Disk
		is   bool
	}{
		"in full":              {hv.Disk{Chain: []hv.Image{top, base}, Terminated: true}, true},
		"without its end":      {hv.Disk{Chain: []hv.Image{top, base}}, true},
		"left to the header":   {hv.Disk{Chain: []hv.Image{top}}, true},
		"as libvirt joins it":  {hv.Disk{Chain: []hv.Image{top, unclean}, Terminated: true}, true},
		"ended above its base": {hv.Disk{Chain: []hv.Image{top}, Terminated: true}, false},
		"over another one":     {hv.Disk{Chain: []hv.Image{top, other}, Terminated: true}, false},
		"under another one":    {hv.Disk{Chain: []hv.Image{other, top, base}, Terminated: true}, false},
		"another one":          {hv.Disk{Chain: []hv.Image{other}}, false},
		"none":                 {hv.Disk{}, false},
	} {
		if got := location.OnChain(&c.disk, []hv.Image{top, base}, 1); got != c.is {
			t.Errorf("%s: %t", name, got)
		}
	}
	if location.OnChain(&hv.Disk{Chain: []hv.Image{top}}, []hv.Image{top, base}, 0) {
		t.Error("what is no base image was left out")
	}
}
