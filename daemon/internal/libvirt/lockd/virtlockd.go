// SPDX-License-Identifier: Apache-2.0

// Package lockd is libvirt's lock manager for images: its settings, and the leases of guests at its
// daemon virtlockd.
package lockd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/google/uuid"
)

// Virtlockd is a connection to libvirt's lock daemon, registered for one process of a domain. The
// protocol of libvirt's src/locking/lock_protocol.x is stable, because libvirtd and virtlockd of
// different versions use it. Closing the connection drops no lease: only the end of QEMU's own
// connection does.
type Virtlockd struct {
	conn   net.Conn
	serial uint32
}

// The numbers of the protocol.
const (
	lockProgram, lockVersion = 0xEA7BEEF, 1

	lockRegister = 1
	lockAcquire  = 6
	lockRelease  = 7

	lockShared, lockAutoCreate = 1, 2

	rpcHeaderBytes = 28 // length, program, version, procedure, type, serial, status
	rpcMaxBytes    = 1 << 16
)

// virtlockdTimeout bounds the conversation with virtlockd: a guest is suspended meanwhile.
const virtlockdTimeout = 5 * time.Second

// Lease is a lease of a domain, by the names that libvirtd uses at virtlockd.
type Lease struct {
	Lockspace, Name    string
	Shared, AutoCreate bool
}

// Dial connects to virtlockd, and registers the process of a domain there.
func Dial(ctx context.Context, socket, domain string, pid int) (*Virtlockd, error) {
	id, err := uuid.Parse(domain)
	if err != nil {
		return nil, fmt.Errorf("register at virtlockd: %w", err)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to virtlockd: %w", err)
	}
	v := &Virtlockd{conn: conn}
	err = conn.SetDeadline(time.Now().Add(virtlockdTimeout))
	if err == nil {
		args := append([]byte{}, id[:]...)
		// The name and number of the domain, which virtlockd only requires, and then the owner of
		// the leases.
		args = appendString(args, domain)
		args = binary.BigEndian.AppendUint32(args, uint32(pid))
		args = binary.BigEndian.AppendUint32(args, uint32(pid))
		args = binary.BigEndian.AppendUint32(args, 0)
		err = v.call(lockRegister, args)
	}
	if err != nil {
		return nil, fmt.Errorf("register at virtlockd: %w", errors.Join(err, conn.Close()))
	}
	return v, nil
}

// Close closes the connection.
func (v *Virtlockd) Close() { _ = v.conn.Close() }

// Release drops one hold of the process on a lease. It returns an error if the process has none.
func (v *Virtlockd) Release(l Lease) error { return v.call(lockRelease, l.args(0)) }

// Acquire takes a lease for the process.
func (v *Virtlockd) Acquire(l Lease) error {
	var flags uint32
	if l.Shared {
		flags |= lockShared
	}
	if l.AutoCreate {
		flags |= lockAutoCreate
	}
	return v.call(lockAcquire, l.args(flags))
}

func (l Lease) args(flags uint32) []byte {
	return binary.BigEndian.AppendUint32(appendString(appendString(nil, l.Lockspace), l.Name), flags)
}

// RefusedError is virtlockd's refusal of a call: it understood the call, and did nothing.
type RefusedError struct{ text string }

func (e *RefusedError) Error() string { return "virtlockd refuses: " + e.text }

func (v *Virtlockd) call(procedure uint32, args []byte) error {
	v.serial++
	message := make([]byte, 0, rpcHeaderBytes+len(args))
	for _, field := range []uint32{uint32(rpcHeaderBytes + len(args)), lockProgram, lockVersion, procedure, 0, v.serial, 0} {
		message = binary.BigEndian.AppendUint32(message, field)
	}
	if _, err := v.conn.Write(append(message, args...)); err != nil {
		return err
	}
	header := make([]byte, rpcHeaderBytes)
	if _, err := io.ReadFull(v.conn, header); err != nil {
		return err
	}
	field := func(n int) uint32 { return binary.BigEndian.Uint32(header[4*n:]) }
	length, status := field(0), field(6)
	if length < rpcHeaderBytes || length > rpcMaxBytes || field(1) != lockProgram || field(3) != procedure || field(5) != v.serial {
		return errors.New("virtlockd answers something else")
	}
	body := make([]byte, length-rpcHeaderBytes)
	if _, err := io.ReadFull(v.conn, body); err != nil {
		return err
	}
	if status != 0 {
		return &RefusedError{errorText(body)}
	}
	return nil
}

func errorText(body []byte) string {
	const before = 16 // code, domain, whether there is a text, its length
	if len(body) < before || binary.BigEndian.Uint32(body[8:]) == 0 {
		return "it says no reason"
	}
	n := binary.BigEndian.Uint32(body[12:])
	if uint64(before)+uint64(n) > uint64(len(body)) {
		return "it says no reason"
	}
	return string(body[before : before+n])
}

// appendString encodes a string: its length, its bytes, and zeros up to a multiple of four.
func appendString(to []byte, s string) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(s)))
	to = append(to, s...)
	for len(s)%4 != 0 {
		to, s = append(to, 0), s+" "
	}
	return to
}
