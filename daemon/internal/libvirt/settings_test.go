// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// testSettings removes and attaches disks with all settings that libvirt permits an owner, with
// other images, running and defined: a SCSI disk, which is removed without the guest, and a virtio
// disk in the definition.
func testSettings(t *testing.T, env *realEnv) {
	id, _ := env.define(t)
	ctx := t.Context()
	for target, rest := range map[string]string{
		"vdb": `<geometry cyls='16' heads='4' secs='32'/>
			<blockio logical_block_size='512' physical_block_size='4096'/>
			<target dev='vdb' bus='virtio'/>
			<iotune><read_bytes_sec>1000000</read_bytes_sec><write_iops_sec>300</write_iops_sec></iotune>
			<serial>own</serial><boot order='3'/>`,
		"sda": `<target dev='sda' bus='scsi'/>
			<iotune><total_iops_sec>500</total_iops_sec><total_iops_sec_max>900</total_iops_sec_max></iotune>
			<serial>own2</serial><wwn>5000c50015ea71ac</wwn><vendor>ACME</vendor><product>DISK</product>`,
	} {
		first := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: env.Path(t, target+"-1.raw")}
		second := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: env.Path(t, target+"-2.raw")}
		env.CreateImage(t, first.Path, first.Format, 1<<20)
		env.CreateImage(t, second.Path, second.Format, 1<<20)
		queues := "queues='2'"
		if target == "sda" {
			queues = ""
		}
		def := fmt.Sprintf(`<disk type='file' device='disk' snapshot='no'>
			<driver name='qemu' type='raw' cache='writethrough' error_policy='stop' rerror_policy='report' io='threads'
				discard='unmap' detect_zeroes='unmap' %s/>
			<source file='%s' startupPolicy='optional'/><backingStore/>%s</disk>`, queues, first.Path, rest)
		must(t, env.conn.AttachDisk(ctx, id, hv.Config, hv.DiskSpec{Target: target, Definition: def}))
		before, err := env.conn.DiskDefinition(ctx, id, hv.Config, target)
		must(t, err)
		must(t, env.conn.DetachDisk(ctx, id, hv.Config, target))
		must(t, env.conn.AttachDisk(ctx, id, hv.Config, hv.DiskSpec{Target: target, Slot: before, Image: second}))
		wantSettings(t, env, id, hv.Config, target, before, first, second)
	}

	// libvirt refuses a metadata cache with an image that is not qcow2.
	first := hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: env.Path(t, "vdc-1.qcow2")}
	second := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: env.Path(t, "vdc-2.raw")}
	env.CreateImage(t, first.Path, first.Format, 1<<20)
	env.CreateImage(t, second.Path, second.Format, 1<<20)
	cached := fmt.Sprintf(`<disk type='file' device='disk'>
		<driver name='qemu' type='qcow2'><metadata_cache><max_size unit='bytes'>1048576</max_size></metadata_cache></driver>
		<source file='%s'/><backingStore/><target dev='vdc' bus='virtio'/></disk>`, first.Path)
	must(t, env.conn.AttachDisk(ctx, id, hv.Config, hv.DiskSpec{Target: "vdc", Definition: cached}))
	slot, err := env.conn.DiskDefinition(ctx, id, hv.Config, "vdc")
	must(t, err)
	must(t, env.conn.DetachDisk(ctx, id, hv.Config, "vdc"))
	must(t, env.conn.AttachDisk(ctx, id, hv.Config, hv.DiskSpec{Target: "vdc", Slot: slot, Image: second}))

	testImageKinds(t, env, id)

	env.Start(t, id)
	before, err := env.conn.DiskDefinition(ctx, id, hv.Live, "sda")
	must(t, err)
	config, err := env.conn.DiskDefinition(ctx, id, hv.Config, "sda")
	must(t, err)
	env.unplug(t, id)
	must(t, env.conn.AttachDisk(ctx, id, hv.Live, hv.DiskSpec{Target: "sda", Definition: config}))
	wantSettings(t, env, id, hv.Live, "sda", before, hv.Image{}, hv.Image{})
}

// testImageKinds defines disks with the settings that a move refuses for some destinations: libvirt
// permits each setting for the kind of the present image, and refuses it for the destination's
// kind.
func testImageKinds(t *testing.T, env *realEnv, id string) {
	t.Helper()
	raw, qcow2 := env.Path(t, "vde.raw"), env.Path(t, "vde.qcow2")
	env.CreateImage(t, raw, hvtest.Raw, 1<<20)
	env.CreateImage(t, qcow2, hvtest.Qcow2, 1<<20)
	for name, def := range map[string]struct{ allowed, refused string }{
		"startupPolicy, to an export": {
			"<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='" + raw + "' startupPolicy='optional'/><backingStore/><target dev='vde' bus='virtio'/></disk>",
			"<disk type='network' device='disk'><driver name='qemu' type='raw'/><source protocol='nbd' startupPolicy='optional'><host transport='unix' socket='/run/none'/></source><target dev='vde' bus='virtio'/></disk>",
		},
		"shareable, to qcow2": {
			"<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='" + raw + "'/><backingStore/><target dev='vde' bus='virtio'/><shareable/></disk>",
			"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='" + qcow2 + "'/><backingStore/><target dev='vde' bus='virtio'/><shareable/></disk>",
		},
	} {
		must(t, env.conn.AttachDisk(t.Context(), id, hv.Config, hv.DiskSpec{Target: "vde", Definition: def.allowed}))
		must(t, env.conn.DetachDisk(t.Context(), id, hv.Config, "vde"))
		if err := env.conn.AttachDisk(t.Context(), id, hv.Config, hv.DiskSpec{Target: "vde", Definition: def.refused}); err == nil {
			t.Errorf("%s: libvirt allows it", name)
			must(t, env.conn.DetachDisk(t.Context(), id, hv.Config, "vde"))
		}
	}
}

// wantSettings checks that a disk is unchanged except for its image.
func wantSettings(t *testing.T, env *realEnv, id string, where hv.Where, target, before string, was, is hv.Image) {
	t.Helper()
	after, err := env.conn.DiskDefinition(t.Context(), id, where, target)
	must(t, err)
	if diff := cmp.Diff(lines(before, was.Path), lines(after, is.Path)); diff != "" {
		t.Errorf("%s disk %s (-before +after)\n%s", where, target, diff)
	}
}

// lines returns the lines of a document without the image's path.
func lines(doc, path string) []string {
	if path != "" {
		doc = strings.ReplaceAll(doc, path, "IMAGE")
	}
	out := strings.Split(doc, "\n")
	for i := range out {
		out[i] = indexOfImage.ReplaceAllString(strings.TrimSpace(out[i]), "")
	}
	return out
}

// indexOfImage matches the numbers that each process gives its images.
var indexOfImage = regexp.MustCompile(` index=['"]\d+['"]`)
