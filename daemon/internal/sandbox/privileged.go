// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/quota"
	"github.com/volferry/volferry/daemon/internal/thin"
)

// Privileged makes the system calls on open files that need CAP_SYS_ADMIN.
type Privileged struct {
	// Socket is the socket of `volferryd privileged`, which makes the calls. If it is empty, this
	// process makes them.
	Socket string
}

// While a guest has an image, libvirt stores the previous owner ("+1000:+1000") and label of the
// file in these attributes.
const (
	AttrOwnerBefore = "trusted.libvirt.security.dac"
	AttrLabelBefore = "trusted.libvirt.security.selinux"
)

// Flush writes this host's cached pages of a block device to it, and drops them.
func (p Privileged) Flush(ctx context.Context, device *os.File) error {
	if p.Socket == "" {
		return flush(device)
	}
	_, _, err := ask(ctx, p.Socket, request{Call: callFlush}, device)
	if err != nil {
		return fmt.Errorf("flush %s: %w", device.Name(), err)
	}
	return nil
}

// Attribute reads one of the attributes above. Errors are the kernel's: ENODATA if the file has
// none.
func (p Privileged) Attribute(ctx context.Context, f *os.File, name string) ([]byte, error) {
	if p.Socket == "" {
		return attribute(f, name)
	}
	out, _, err := ask(ctx, p.Socket, request{Call: callAttribute, Name: name}, f)
	return out.Value, err
}

// ThinBlockBytes returns thin.BlockBytes of an open device. It returns 0, without a request, if
// the device is no device-mapper device.
func (p Privileged) ThinBlockBytes(ctx context.Context, device *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &st); err != nil {
		return 0, fmt.Errorf("inspect %s: %w", device.Name(), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, nil
	}
	mapped := fmt.Sprintf("/sys/dev/block/%d:%d/dm", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	if _, err := os.Stat(mapped); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	control, err := os.OpenFile(thin.Control, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = control.Close() }()
	if p.Socket == "" {
		return thin.BlockBytes(control, st.Rdev)
	}
	out, _, err := ask(ctx, p.Socket, request{Call: callThin, Device: st.Rdev}, control)
	if err != nil {
		return 0, fmt.Errorf("ask about %s: %w", device.Name(), err)
	}
	return out.Bytes, nil
}

// ThinPools returns the active LVM thin pools of this host. It omits an unreadable pool, and names
// it in the error.
func (p Privileged) ThinPools(ctx context.Context) ([]thin.Pool, error) {
	devices, err := thin.Devices("/sys")
	if err != nil || len(devices) == 0 {
		return nil, err
	}
	control, err := os.OpenFile(thin.Control, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = control.Close() }()
	pools := make([]thin.Pool, 0, len(devices))
	var unread error
	for _, device := range devices {
		status, err := p.thinStatus(ctx, control, device.Number)
		var usage thin.Usage
		if err == nil {
			usage, err = thin.ParseStatus(status)
		}
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("read thin pool %s: %w", device.Name, err))
			continue
		}
		pools = append(pools, thin.Pool{Name: device.Name, Usage: usage})
	}
	return pools, unread
}

func (p Privileged) thinStatus(ctx context.Context, control *os.File, device uint64) (string, error) {
	if p.Socket == "" {
		return thin.Status(control, device)
	}
	out, _, err := ask(ctx, p.Socket, request{Call: callThinPool, Device: device}, control)
	return string(out.Value), err
}

// Quotas returns quota.Limits of an open file's filesystem.
func (p Privileged) Quotas(ctx context.Context, at *os.File, who quota.Owner) ([]quota.Limit, error) {
	if p.Socket == "" {
		return quota.Limits(at, who)
	}
	out, _, err := ask(ctx, p.Socket, request{Call: callQuota, Owner: who}, at)
	return out.Limits, err
}

// ServePrivileged serves Privileged at a socket until ctx ends, and closes the socket.
func ServePrivileged(ctx context.Context, listener *net.UnixListener, log *slog.Logger) error {
	return serve(ctx, listener, answerPrivileged, log)
}

func answerPrivileged(_ context.Context, in request, file *os.File) (out answer, none *os.File) {
	if file == nil {
		return failed(errors.New("no file came with the request")), nil
	}
	var err error
	switch in.Call {
	case callFlush:
		err = flush(file)
	case callAttribute:
		out.Value, err = attribute(file, in.Name)
	case callThin:
		out.Bytes, err = thin.BlockBytes(file, in.Device)
	case callThinPool:
		var status string
		status, err = thin.Status(file, in.Device)
		out.Value = []byte(status)
	case callQuota:
		out.Limits, err = quota.Limits(file, in.Owner)
	default:
		err = fmt.Errorf("there is no call %q here", in.Call)
	}
	if err != nil {
		return failed(err), nil
	}
	return out, nil
}

func flush(device *os.File) error {
	st, err := device.Stat()
	if err != nil {
		return err
	}
	if st.Mode().Type() != os.ModeDevice {
		return errors.New("it is no block device")
	}
	if err := unix.IoctlSetInt(int(device.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return &os.PathError{Op: "BLKFLSBUF", Path: device.Name(), Err: err}
	}
	return nil
}

func attribute(f *os.File, name string) ([]byte, error) {
	if !slices.Contains([]string{AttrOwnerBefore, AttrLabelBefore}, name) {
		return nil, fmt.Errorf("the attribute %q is none of libvirt's", name)
	}
	return Fgetxattr(f, name)
}

// Fgetxattr reads any attribute of an open file, with the rights of this process. Errors are the
// kernel's.
func Fgetxattr(f *os.File, name string) ([]byte, error) {
	value := make([]byte, 64<<10) // XATTR_SIZE_MAX
	n, err := unix.Fgetxattr(int(f.Fd()), name, value)
	if err != nil {
		return nil, err
	}
	return value[:n], nil
}
