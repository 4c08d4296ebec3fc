// SPDX-License-Identifier: Apache-2.0

// Package sandbox does work that the unit of volferryd prohibits: calls that need CAP_SYS_ADMIN,
// connections to the registry and to NBD servers, images of Ceph clusters, the programs of storage
// that libvirt does not manage, the inspection of other processes, checks of other users' rights,
// and the installation of the hook. It also isolates the QEMU programs that read images from the
// daemon's privileges. Eight small programs do this; without the unit the daemon does it itself.
package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/process"
	"github.com/volferry/volferry/daemon/internal/quota"
)

// The values of Call in a request.
const (
	callAnswers   = "answers" // a no-op of all programs except the QEMU programs
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
	callRun       = "run"
	callBegin     = "begin"
	callSignal    = "signal"

	callMayOpen    = "may_open"
	callMayPass    = "may_pass"
	callMayConnect = "may_connect"
	callHook       = "hook"
	callClaims     = "claims"
	callProcess    = "process"
	callClosedFor  = "closed_for"
)

type request struct {
	Call   string          `json:"call"`
	Name   string          `json:"name,omitempty"`
	Device uint64          `json:"device,omitempty"`
	Value  []byte          `json:"value,omitempty"`
	Owner  quota.Owner     `json:"owner,omitzero"`
	Images []process.Image `json:"images,omitempty"`
	PID    int             `json:"pid,omitempty"`
	// User is the user for a check of access.
	User *User `json:"user,omitempty"`
	// Write is true if an image is opened for writing too.
	Write   bool     `json:"write,omitempty"`
	Program *program `json:"program,omitempty"`
	Signal  int      `json:"signal,omitempty"`
}

type program struct {
	Name string   `json:"name"`
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"`
	// Written are the indexes of files that are open for reading, and that the program opens again
	// for writing.
	Written []int `json:"written,omitempty"`
}

type answer struct {
	Error        string        `json:"error,omitempty"`
	Errno        int           `json:"errno,omitempty"`
	Value        []byte        `json:"value,omitempty"`
	Bytes        int64         `json:"bytes,omitempty"`
	Limits       []quota.Limit `json:"limits,omitempty"`
	Status       uint32        `json:"status,omitempty"`
	NotInstalled bool          `json:"not_installed,omitempty"`
	// Unrestricted is true if the program has no Landlock domain, because the kernel has no
	// Landlock.
	Unrestricted bool `json:"unrestricted,omitempty"`

	// ended is called when the caller has closed the connection. It is nil if the answer does not
	// wait for that.
	ended func() error
}

func failed(err error) answer {
	a := answer{Error: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		a.Errno = int(errno)
	}
	return a
}

// err returns the error of an answer. An error of the kernel has its errno.
func (a answer) err() error {
	switch {
	case a.Errno != 0:
		return &remoteError{text: a.Error, errno: syscall.Errno(a.Errno)}
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

type remoteError struct {
	text  string
	errno syscall.Errno
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.errno }

// maxMessage is the maximum length of a message in bytes. An attribute or a connector's text has
// at most 64 KiB, in base64; a program's argument has at most 128 KiB, and JSON escapes its
// quotes.
const maxMessage = 256 << 10

const maxFiles = 253

func send(conn *net.UnixConn, message any, files ...*os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		if f != nil {
			fds = append(fds, int(f.Fd()))
		}
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(text, rights, nil)
	runtime.KeepAlive(files)
	return err
}

func receive(conn *net.UnixConn, message any) (*os.File, error) {
	files, err := receiveFiles(conn, message)
	switch {
	case err != nil || len(files) > 1:
		closeAll(files)
		return nil, cmp.Or(err, errors.New("the message has more than one file"))
	case len(files) == 1:
		return files[0], nil
	}
	return nil, nil //nolint:nilnil // a message without a file
}

// receiveFiles reads one message and its files. It returns the files also with an error.
func receiveFiles(conn *net.UnixConn, message any) ([]*os.File, error) {
	text := make([]byte, maxMessage)
	rights := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, nRights, flags, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	files, err := filesIn(rights[:nRights])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("the message is too long, or has too many files")
	}
	if err == nil {
		err = json.Unmarshal(text[:n], message)
	}
	return files, err
}

func filesIn(rights []byte) (files []*os.File, err error) {
	if len(rights) == 0 {
		return nil, nil
	}
	control, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(control) != 1 {
		return nil, fmt.Errorf("read the files of a message: %w", errors.Join(err, unix.EINVAL))
	}
	fds, err := unix.ParseUnixRights(&control[0])
	if err != nil {
		return nil, fmt.Errorf("read the files of a message: %w", errors.Join(err, unix.EINVAL))
	}
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), nameOf(fd)))
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func nameOf(fd int) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "handed over"
	}
	return path
}
