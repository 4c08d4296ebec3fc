// SPDX-License-Identifier: Apache-2.0

// Package sandbox does what the unit of volferryd does not let it do: the calls that need
// CAP_SYS_ADMIN, connections to the registry and to NBD servers, images of Ceph clusters, and the programs of storage that libvirt does not
// manage. Four small programs do them in its place; without the unit the daemon does them itself. The package has both sides. It knows
// nothing of volumes.
package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/quota"
)

// The calls.
const (
	callFlush     = "flush"
	callAttribute = "attribute"
	callThin      = "thin"
	callThinPool  = "thin_pool"
	callQuota     = "quota"
	callConnect   = "connect"
	callConnector = "connector"
	callCheck     = "check"
	callLook      = "look"
	callWatchers  = "watchers"
	callSnapshot  = "snapshot"
	callChange    = "change"
	callOpen      = "open"
)

// request is one message, with the open file that it is about, if it is about one.
type request struct {
	Call string `json:"call"`
	Name string `json:"name,omitempty"`
	// Device is the number of a block device.
	Device uint64 `json:"device,omitempty"`
	// Value is what a connector is asked, or what of a snapshot, or how an image is changed.
	Value []byte `json:"value,omitempty"`
	// Owner is whose quotas are asked for.
	Owner quota.Owner `json:"owner,omitzero"`
	// Write: an image is opened for writing too.
	Write bool `json:"write,omitempty"`
}

// answer is the message that comes back, with an open file if there is one to hand over.
type answer struct {
	Error string `json:"error,omitempty"`
	// Errno is the kernel's part of the error, for who tells errors apart.
	Errno int    `json:"errno,omitempty"`
	Value []byte `json:"value,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	// Limits are quotas.
	Limits []quota.Limit `json:"limits,omitempty"`

	// ended is called when whoever asked has closed the connection; nil if that is not waited for.
	ended func() error
}

// failed is the answer for an error.
func failed(err error) answer {
	a := answer{Error: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		a.Errno = int(errno)
	}
	return a
}

// err is the error of an answer as whoever asked would have met it: a kernel's error is one.
func (a answer) err() error {
	switch {
	case a.Errno != 0:
		return &remoteError{text: a.Error, errno: syscall.Errno(a.Errno)}
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

// remoteError is an error of the kernel that another program met.
type remoteError struct {
	text  string
	errno syscall.Errno
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.errno }

// maxMessage bounds a message: an extended attribute and what is said to a connector have at
// most 64 KiB, in base64.
const maxMessage = 128 << 10

// send writes one message, with a file unless that is nil.
func send(conn *net.UnixConn, message any, file *os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	_, _, err = conn.WriteMsgUnix(text, rights, nil)
	return err
}

// receive reads one message, and the file that came with it, nil if none did.
func receive(conn *net.UnixConn, message any) (*os.File, error) {
	text := make([]byte, maxMessage)
	rights := make([]byte, unix.CmsgSpace(4))
	n, nRights, flags, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	file, err := fileIn(rights[:nRights])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("the message is too long, or has more than one file")
	}
	if err == nil {
		err = json.Unmarshal(text[:n], message)
	}
	if err != nil && file != nil {
		err = errors.Join(err, file.Close())
		file = nil
	}
	return file, err
}

// fileIn is the file in the control part of a message.
func fileIn(rights []byte) (*os.File, error) {
	if len(rights) == 0 {
		return nil, nil //nolint:nilnil // a message without a file
	}
	control, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(control) != 1 {
		return nil, fmt.Errorf("read the file of a message: %w", errors.Join(err, unix.EINVAL))
	}
	fds, err := unix.ParseUnixRights(&control[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("read the file of a message: %w", errors.Join(err, unix.EINVAL))
	}
	return os.NewFile(uintptr(fds[0]), nameOf(fds[0])), nil
}

// nameOf returns the path of an open file for messages, if the kernel has one.
func nameOf(fd int) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "handed over"
	}
	return path
}
