// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"runtime"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// maxChannels bounds the channels for the RAM of one guest: more do not make a disk faster.
const maxChannels = 8

// sparseImage is libvirt's name for a file with a fixed place for each page of the RAM (QEMU's
// mapped-ram), which channels need.
const sparseImage = "sparse"

var (
	// Since this libvirt version, a save has a format and channels of its own
	// (VIR_DOMAIN_SAVE_PARAM_IMAGE_FORMAT, VIR_DOMAIN_SAVE_PARAM_PARALLEL_CHANNELS).
	libvirtWithChannels = hv.Version{Major: 11, Minor: 2}
	// Since this QEMU version, channels write a mapped-ram file past the page cache (direct-io).
	qemuWithChannels = hv.Version{Major: 9, Minor: 1}
)

// saveChannels returns how many channels can write the RAM of a running domain; 0 means one
// stream. The version of the running QEMU decides; the installed QEMU may be newer.
//
// A file on a tmpfs gets no channels: the process of a guest with QEMU 10.0 may end there.
func (m *memory) saveChannels(ctx context.Context, id string, past golibvirt.DomainSaveRestoreFlags) (int, error) {
	channels, err := m.restoreChannels(ctx)
	if err != nil || channels == 0 || past == 0 {
		return 0, err
	}
	qemu, err := m.processes.qemuVersion(ctx, id)
	if err != nil || qemu.Before(qemuWithChannels) {
		return 0, err
	}
	return channels, nil
}

// restoreChannels returns how many channels can read RAM that channels wrote; 0 means none.
func (m *memory) restoreChannels(ctx context.Context) (int, error) {
	version, err := m.connection.libraryVersion(ctx)
	if err != nil || version.Before(libvirtWithChannels) {
		return 0, err
	}
	return min(runtime.NumCPU(), maxChannels), nil
}

// saveDomain writes the RAM of a domain into a file, with channels if libvirt accepts them for
// this domain.
func saveDomain(lv *golibvirt.Libvirt, dom golibvirt.Domain, path string, channels int, flags golibvirt.DomainSaveRestoreFlags) error {
	if channels > 0 {
		err := lv.DomainSaveParams(dom, []golibvirt.TypedParam{
			{Field: golibvirt.DomainSaveParamFile, Value: *golibvirt.NewTypedParamValueString(path)},
			{Field: golibvirt.DomainSaveParamImageFormat, Value: *golibvirt.NewTypedParamValueString(sparseImage)},
			channelsParam(channels),
		}, uint32(flags))
		if !refusedChannels(err) {
			return err
		}
	}
	return lv.DomainSaveFlags(dom, path, nil, uint32(flags))
}

// restoreDomain starts a domain from a file of saveDomain. If one stream wrote the file, libvirt
// refuses channels before it does anything.
func restoreDomain(lv *golibvirt.Libvirt, path, definition string, channels int, flags golibvirt.DomainSaveRestoreFlags) error {
	if channels > 0 {
		err := lv.DomainRestoreParams([]golibvirt.TypedParam{
			{Field: golibvirt.DomainSaveParamFile, Value: *golibvirt.NewTypedParamValueString(path)},
			{Field: golibvirt.DomainSaveParamDxml, Value: *golibvirt.NewTypedParamValueString(definition)},
			channelsParam(channels),
		}, uint32(flags))
		if !refusedChannels(err) {
			return err
		}
	}
	return lv.DomainRestoreFlags(path, golibvirt.OptString{definition}, uint32(flags))
}

func channelsParam(n int) golibvirt.TypedParam {
	return golibvirt.TypedParam{Field: golibvirt.DomainSaveParamParallelChannels, Value: *golibvirt.NewTypedParamValueInt(int32(n))}
}

// refusedChannels reports whether libvirt refused a save or a restore because of its channels or
// format, and so did nothing.
func refusedChannels(err error) bool {
	return said(err, golibvirt.ErrInvalidArg) || said(err, golibvirt.ErrArgumentUnsupported) || said(err, golibvirt.ErrOperationUnsupported)
}
