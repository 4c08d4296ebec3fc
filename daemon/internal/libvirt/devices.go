// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// devices implements hv.Devices without connectors: a volume of a libvirt pool needs no
// connecting, and no libvirt pool copies by itself.
type devices struct{}

func (devices) Connectable(context.Context, string) (bool, error) { return false, nil }

func (devices) FindDeviceCopy(context.Context, string, string) (*hv.DeviceCopy, error) {
	return nil, fmt.Errorf("%w: no pool copies by itself", hv.ErrNotFound)
}

func (devices) CopyDevice(context.Context, hv.DeviceCopy, int64, int64) (int64, error) {
	return 0, fmt.Errorf("%w: pools of libvirt copy nothing", hv.ErrUnsupported)
}

func (devices) ConnectDevice(context.Context, string) error { return nil }

func (devices) DisconnectDevice(context.Context, string) error { return nil }
