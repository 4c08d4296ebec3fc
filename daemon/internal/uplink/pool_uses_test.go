// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

func TestUsesOfAPoolAreTheFilesThereThatAreNoVolumes(t *testing.T) {
	diskAt := func(target, device string, paths ...string) hv.Disk {
		d := hv.Disk{Target: target, Device: device}
		for _, p := range paths {
			d.Chain = append(d.Chain, hv.Image{Path: p})
		}
		return d
	}
	doms := []hv.Domain{
		{
			ID: "1", Name: "web", Live: []hv.Disk{diskAt("vda", "disk", "/var/ovl", "/p/web"), diskAt("sda", "cdrom", "/p/a.iso")},
			Config: []hv.Disk{diskAt("vda", "disk", "/p/web"), diskAt("sda", "cdrom", "/p/a.iso")},
			Files:  []hv.DomainFile{{What: "nvram", Path: "/p/VARS.fd"}, {What: "kernel", Path: "/boot/vmlinuz"}},
		},
		{ID: "2", Name: "other", Config: []hv.Disk{diskAt("vda", "disk", "/p/sub/clone", "/p/base")}},
	}
	pools := []api.Pool{{Name: "p", Type: "dir", Path: "/p"}, {Name: "q", Type: "dir", Path: "/q"}}
	addUses(pools, doms, nil, nil, map[string][]api.Attachment{"1": {{DiskAttachment: api.DiskAttachment{Device: "vda"}}}})
	want := []api.PoolUse{
		{Domain: "other", What: "disk vda", Path: "/p/base"},
		{Domain: "other", What: "disk vda", Path: "/p/sub/clone"},
		{Domain: "web", What: "nvram", Path: "/p/VARS.fd"},
		{Domain: "web", What: "cdrom sda", Path: "/p/a.iso"},
	}
	if !slices.Equal(pools[0].Uses, want) {
		t.Errorf("uses = %+v\nwant %+v", pools[0].Uses, want)
	}
	if len(pools[1].Uses) != 0 {
		t.Errorf("uses of another pool = %+v", pools[1].Uses)
	}
}

func TestADomainThatCannotBeReadMayUseEveryPool(t *testing.T) {
	pools := []api.Pool{{Name: "p", Type: "dir", Path: "/p"}}
	addUses(pools, nil, []hv.UnreadableDomain{{ID: "1", Name: "odd\n", Err: errors.New(strings.Repeat("x", 1000))}}, nil, nil)
	if u := pools[0].Uses; len(u) != 1 || u[0].Unknown == "" || len(u[0].Unknown) > maxUseText || u[0].Domain != "odd\ufffd" {
		t.Errorf("uses = %+v", u)
	}
	addUses(pools, nil, nil, errors.New("libvirt is away"), nil)
	if u := pools[0].Uses; len(u) != 1 || u[0].Unknown != "libvirt is away" || u[0].Domain != "" {
		t.Errorf("uses of a host whose libvirt does not answer = %+v", u)
	}
}
