// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/expect"
)

// Only its path identifies the file for an operator when a quota, or a full disk, refuses a write.
func TestAFileThatComesWithAMessageHasItsPathInErrors(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	expect.OK(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "socket")
		conn, err := net.FileConn(file)
		expect.OK(t, err)
		expect.OK(t, file.Close())
		t.Cleanup(func() { expect.OK(t, conn.Close()) })
		ends[i] = conn.(*net.UnixConn) //nolint:forcetypeassert,errcheck // of a socket of this kind
	}
	path := filepath.Join(t.TempDir(), "image.raw")
	expect.OK(t, os.WriteFile(path, nil, 0o600))
	sent, err := os.Open(path)
	expect.OK(t, err)
	expect.OK(t, send(ends[0], request{Call: callOpen}, sent))
	expect.OK(t, sent.Close())
	var got request
	file, err := receive(ends[1], &got)
	expect.OK(t, err)
	defer func() { expect.OK(t, file.Close()) }()
	if _, err := file.WriteString("x"); err == nil || err.Error() != "write "+path+": bad file descriptor" {
		t.Errorf("a write to a file that is open for reading says %v, without its path", err)
	}
}
