// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
)

const poolDisk = `<domain><devices><disk type='volume' device='disk'><driver name='qemu' type='qcow2'/>
	<source pool='images' volume='top' startupPolicy='optional'/>
	<backingStore type='volume'><format type='raw'/><source pool='lvm' volume='base'/><backingStore/></backingStore>
	<target dev='vda'/></disk></devices></domain>`

func TestAPoolsVolumeIsTheImageThatThePoolHas(t *testing.T) {
	p, err := ParseDomain(poolDisk, PoolSources{
		{"images", "top"}: {Type: hv.SourceFile, Path: "/pool/top"},
		{"lvm", "base"}:   {Type: hv.SourceBlock, Path: "/dev/vg/base"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := hv.Disk{Target: "vda", Device: "disk", Terminated: true, StartupPolicy: "optional", Chain: []hv.Image{
		file("qcow2", "/pool/top"), {Type: hv.SourceBlock, Format: "raw", Path: "/dev/vg/base"},
	}}
	if diff := cmp.Diff([]hv.Disk{want}, p.Disks); diff != "" {
		t.Errorf("disk (-want +got):\n%s", diff)
	}
}

func TestAPoolsVolumeThatIsNotKnownHasNoPath(t *testing.T) {
	p, err := ParseDomain(poolDisk, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if top := p.Disks[0].Top(); top.Type != "volume" || top.Path != "" {
		t.Errorf("top = %+v", top)
	}
}

func TestAPoolsVolumeThatOnlyQEMUReachesIsNotCarried(t *testing.T) {
	doc := strings.Replace(poolDisk, "volume='top'", "volume='top' mode='direct'", 1)
	p, err := ParseDomain(doc, PoolSources{{"images", "top"}: {Type: hv.SourceFile, Path: "/pool/top"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Disks[0]; d.Top().Path != "" || d.Uncarried != "mode= in its <source>" {
		t.Errorf("disk = %+v", d)
	}
}

func TestRechainLeavesNoPoolInTheSource(t *testing.T) {
	got, err := Rechain(poolDisk, "vda", []hv.Image{file("raw", "/a")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"pool=", "volume", "base"} {
		if strings.Contains(got, gone) {
			t.Errorf("%s is left in %s", gone, got)
		}
	}
	if !strings.Contains(got, `<disk type="file"`) || !strings.Contains(got, `startupPolicy="optional"`) {
		t.Errorf("got %s", got)
	}
}
