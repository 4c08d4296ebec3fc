// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// FullBytes returns the size of a device for a qcow2 image.
func (*Images) FullBytes(_ context.Context, sizeBytes int64) (int64, error) {
	return sizeBytes + hvtest.TableBytes, nil
}

// CheckFits refuses a qcow2 image that may outgrow its device.
func (i *Images) CheckFits(_ context.Context, l api.Location, info image.Info) error {
	if is, err := i.info(l.Path); err != nil || l.Format == api.FormatRaw || is.DeviceBytes == 0 || is.DeviceBytes >= info.SizeBytes+hvtest.TableBytes {
		return err
	}
	return api.Errorf(api.CodeUnsupportedDisk, "%s may outgrow its device", l.Path)
}

// CreateOnDevice makes an empty qcow2 image on the device with this fingerprint.
func (i *Images) CreateOnDevice(ctx context.Context, path string, sizeBytes int64, fingerprint string) error {
	i.moment("device")
	now, err := i.Fingerprint(ctx, path)
	switch {
	case err != nil:
		return err
	case now != fingerprint:
		return &image.ReplacedError{Path: path, Found: now}
	case !i.isDevice(path):
		return fmt.Errorf("%s is no block device", path)
	}
	device, err := i.Inspect(ctx, api.Location{Path: path, Format: api.FormatRaw})
	if full := sizeBytes + hvtest.TableBytes; err == nil && device.SizeBytes < full {
		err = image.TooSmallForQcow2(path, device.SizeBytes, sizeBytes, full)
	}
	if err != nil {
		return err
	}
	err = i.Fake.CreateOnDevice(path, sizeBytes)
	i.moment("formatted")
	return err
}
