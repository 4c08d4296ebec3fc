// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

// A site has hosts a, b and c; c is fenced. Pool local is on each, all share san, and only b has
// wide.
type (
	siteHosts       struct{}
	sitePools       struct{}
	siteTypes       struct{}
	siteVolumes     struct{}
	siteAttachments struct{}
	siteMigrations  struct{}
)

func (siteHosts) All(context.Context) ([]api.Host, error) {
	return []api.Host{{ID: "ha", Name: "a"}, {ID: "hb", Name: "b"}, {ID: "hc", Name: "c", Status: api.HostFenced}}, nil
}

func (s siteHosts) Get(ctx context.Context, ref string) (api.Host, error) {
	all, _ := s.All(ctx)
	for _, h := range all {
		if h.ID == ref || h.Name == ref {
			return h, nil
		}
	}
	return api.Host{}, api.Errorf(api.CodeNotFound, "there is no host %s", ref)
}

func (sitePools) All(context.Context) ([]api.Pool, error) {
	return []api.Pool{
		{Name: "local", Host: "a", Active: true, FreeBytes: 10},
		{Name: "local", Host: "b", Active: true, FreeBytes: 20},
		{Name: "local", Host: "c", Active: true, FreeBytes: 90},
		{Name: "san", Host: "a", Active: true, Shared: true, Multiattach: true, FreeBytes: 5},
		{Name: "san", Host: "b", Active: true, Shared: true, Multiattach: true, FreeBytes: 5},
		{Name: "san", Host: "c", Active: true, Shared: true, Multiattach: true, FreeBytes: 5},
		{Name: "wide", Host: "b", Active: true, FreeBytes: 1},
	}, nil
}

func (siteTypes) Get(_ context.Context, ref string) (api.VolumeType, error) {
	switch ref {
	case "default":
		return api.VolumeType{Name: ref}, nil
	case "many":
		return api.VolumeType{Name: ref, Multiattach: true}, nil
	case "narrow":
		return api.VolumeType{Name: ref, Pools: []string{"local"}}, nil
	case "nowhere":
		return api.VolumeType{Name: ref, Multiattach: true, Pools: []string{"local"}}, nil
	}
	return api.VolumeType{}, api.Errorf(api.CodeNotFound, "there is no type %s", ref)
}

func (siteMigrations) Get(_ context.Context, ref string, _ store.Viewer) (api.Migration, error) {
	if ref == "of-b" {
		return api.Migration{ID: ref, Host: "b", SrcAttachmentID: "ended"}, nil
	}
	return api.Migration{}, api.Errorf(api.CodeNotFound, "there is no migration %s", ref)
}

func (s siteMigrations) All(ctx context.Context, _ string, _ bool, as store.Viewer) ([]api.Migration, error) {
	m, err := s.Get(ctx, "of-b", as)
	return []api.Migration{m}, err
}

func (siteAttachments) Get(_ context.Context, ref string, _ store.Viewer) (api.Attachment, error) {
	if ref == "at-a" {
		return api.Attachment{ID: ref, Host: "a"}, nil
	}
	return api.Attachment{}, api.Errorf(api.CodeNotFound, "there is no attachment %s", ref)
}

// Movers returns a and b in this order, and none for pool x.
func (siteVolumes) Movers(_ context.Context, _, toPool string) ([]string, error) {
	if toPool == "x" {
		return nil, api.Errorf(api.CodeUnsupportedDisk, "no host reaches both")
	}
	return []string{"ha", "hb"}, nil
}

func hostOf(h api.Host, _ string, err error) (api.Host, error) { return h, err }

// found returns a host's name, or the code of the error.
func found(h api.Host, err error) string {
	if err != nil {
		return string(api.CodeOf(err))
	}
	return h.Name
}

func TestHostThatHasToAnswer(t *testing.T) {
	at := func(host, pool string, attached ...string) api.Volume {
		v := api.Volume{Host: host, Location: api.Location{Pool: pool}}
		for _, a := range attached {
			v.Attachments = append(v.Attachments, api.Attachment{Host: a})
		}
		return v
	}
	moving := at("a", "san", "a")
	moving.MigrationID = "of-b"
	ctx := context.Background()
	for name, tc := range map[string]struct {
		there []string
		ask   func(relay.Placement) (api.Host, error)
		want  string
	}{
		"attached":                            {[]string{"ha", "hb"}, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, at("b", "local", "a")) }, "a"},
		"attached twice, first away":          {[]string{"hb"}, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, at("a", "san", "a", "b")) }, "b"},
		"attached twice, both away":           {nil, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, at("a", "san", "a", "b")) }, "a"},
		"attached at a fenced host":           {[]string{"ha"}, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, at("a", "local", "c")) }, "hypervisor_unavailable"},
		"being moved":                         {[]string{"ha", "hb"}, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, moving) }, "b"},
		"unattached, own pool":                {[]string{"hb"}, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, at("a", "local")) }, "a"},
		"unattached, by path":                 {[]string{"hb"}, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, at("a", "")) }, "a"},
		"unattached, shared pool":             {[]string{"ha", "hb"}, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, at("b", "san")) }, "b"},
		"unattached, shared, its host away":   {[]string{"hb"}, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, at("a", "san")) }, "b"},
		"unattached, shared, its host fenced": {[]string{"hb", "hc"}, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, at("c", "san")) }, "b"},
		"unattached, shared, all away":        {nil, func(w relay.Placement) (api.Host, error) { return w.Volume(ctx, at("b", "san")) }, "b"},
		"move, unattached":                    {[]string{"ha", "hb"}, func(w relay.Placement) (api.Host, error) { return w.Mover(ctx, at("b", "san"), "wide") }, "a"},
		"move, at instances on the shelf":     {[]string{"hb"}, func(w relay.Placement) (api.Host, error) { return w.Mover(ctx, at("a", "san", "", ""), "wide") }, "b"},
		"move, none reaches both":             {[]string{"ha", "hb"}, func(w relay.Placement) (api.Host, error) { return w.Mover(ctx, at("a", "san", ""), "x") }, "unsupported_disk"},
		"move, attached":                      {[]string{"ha", "hb"}, func(w relay.Placement) (api.Host, error) { return w.Mover(ctx, at("a", "san", "b"), "x") }, "b"},
		"move, being moved":                   {[]string{"ha", "hb"}, func(w relay.Placement) (api.Host, error) { return w.Mover(ctx, moving, "x") }, "b"},
		"attachment":                          {nil, func(w relay.Placement) (api.Host, error) { return hostOf(w.Attachment(ctx, "at-a")) }, "a"},
		"attachment that a migration ended":   {nil, func(w relay.Placement) (api.Host, error) { return hostOf(w.Attachment(ctx, "ended")) }, "b"},
		"attachment that never was":           {nil, func(w relay.Placement) (api.Host, error) { return hostOf(w.Attachment(ctx, "x")) }, "not_found"},
		"migration":                           {nil, func(w relay.Placement) (api.Host, error) { return hostOf(w.Migration(ctx, "of-b")) }, "b"},
		"create anywhere":                     {[]string{"ha", "hb"}, create(api.VolumeCreate{}), "b"},
		"create, the roomiest away":           {[]string{"ha"}, create(api.VolumeCreate{}), "a"},
		"create in a pool":                    {[]string{"ha", "hb"}, create(api.VolumeCreate{Pool: "wide", Type: "narrow"}), "b"},
		"create, multiattach":                 {[]string{"ha", "hb"}, create(api.VolumeCreate{Type: "many"}), "a"},
		"create, no pool can":                 {[]string{"ha", "hb"}, create(api.VolumeCreate{Type: "nowhere"}), "no_capable_pool"},
		"create in no pool":                   {[]string{"ha", "hb"}, create(api.VolumeCreate{Pool: "x"}), "not_found"},
		"create of no type":                   {[]string{"ha", "hb"}, create(api.VolumeCreate{Type: "x"}), "not_found"},
		"create, host named":                  {nil, func(w relay.Placement) (api.Host, error) { return w.Create(ctx, "a", api.VolumeCreate{Pool: "x"}) }, "a"},
		"create, fenced host named":           {nil, func(w relay.Placement) (api.Host, error) { return w.Create(ctx, "c", api.VolumeCreate{}) }, "hypervisor_unavailable"},
		"adopt of the only host with a pool":  {nil, func(w relay.Placement) (api.Host, error) { return w.Adopt(ctx, "", "wide") }, "b"},
		"adopt of a shared pool":              {[]string{"hb"}, func(w relay.Placement) (api.Host, error) { return w.Adopt(ctx, "", "san") }, "b"},
		"adopt of a pool of several":          {nil, func(w relay.Placement) (api.Host, error) { return w.Adopt(ctx, "", "local") }, "invalid_argument"},
		"adopt of no pool":                    {nil, func(w relay.Placement) (api.Host, error) { return w.Adopt(ctx, "", "x") }, "not_found"},
		"adopt by path":                       {nil, func(w relay.Placement) (api.Host, error) { return w.Adopt(ctx, "", "") }, "invalid_argument"},
		"one of several":                      {nil, func(w relay.Placement) (api.Host, error) { return w.Only(ctx, "") }, "invalid_argument"},
		"one that is named":                   {nil, func(w relay.Placement) (api.Host, error) { return w.Only(ctx, "b") }, "b"},
	} {
		w := relay.Placement{
			Hosts: siteHosts{}, Pools: sitePools{}, Types: siteTypes{}, Volumes: siteVolumes{}, Attachments: siteAttachments{}, Migrations: siteMigrations{},
			Present: func(id string) bool { return slices.Contains(tc.there, id) },
		}
		if got := found(tc.ask(w)); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func create(in api.VolumeCreate) func(relay.Placement) (api.Host, error) {
	return func(w relay.Placement) (api.Host, error) { return w.Create(context.Background(), "", in) }
}
