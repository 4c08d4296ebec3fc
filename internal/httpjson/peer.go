// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

// overflowUID is the uid that the kernel shows for a user without a mapping into this user
// namespace.
const overflowUID = 65534

// Peer is the process at the other end of a Unix socket, as the kernel knew the process when it
// connected. PID, which may be reused, is for the audit trail only.
type Peer struct {
	UID    uint32
	GID    uint32
	PID    int32
	Groups []uint32
}

// String returns the peer in the form of the audit trail, with the user's name if this machine
// knows it.
func (p Peer) String() string { return fmt.Sprintf("%s pid=%d", p.User(), p.PID) }

// User is String without the process.
func (p Peer) User() string {
	name := ""
	if u, err := user.LookupId(strconv.FormatUint(uint64(p.UID), 10)); err == nil {
		name = "(" + u.Username + ")"
	}
	return fmt.Sprintf("uid=%d%s gid=%d", p.UID, name, p.GID)
}

type peerKey struct{}

// ConnContext is an http.Server.ConnContext that adds the peer of a Unix socket to the context of
// its requests.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	p, err := peerOf(u)
	if err != nil {
		return ctx
	}
	return WithPeer(ctx, p)
}

// WithPeer returns ctx with the peer p.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerOf returns the peer that sent the request of ctx, false if the request did not come through
// a Unix socket.
func PeerOf(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(Peer)
	return p, ok
}

// SocketAuthorizer allows reads to all users that the mode of the socket lets connect, and
// everything to root, the user of this program, and members of group. A negative group has no
// members.
func SocketAuthorizer(group int) Authorizer {
	self := os.Getuid()
	return func(r *http.Request, route Route) error {
		p, ok := PeerOf(r.Context())
		if !ok || p.UID == overflowUID && route.Access != Read {
			return api.Errorf(api.CodePermissionDenied, "cannot tell who is calling; use the Unix socket from the host's own user namespace")
		}
		if route.Access == Read || p.UID == 0 || int(p.UID) == self || p.in(group) {
			return nil
		}
		return api.Errorf(api.CodePermissionDenied, "the user with uid %d may only read here; be root or a member of the socket's group", p.UID)
	}
}

func (p Peer) in(group int) bool {
	return group >= 0 && (int(p.GID) == group || slices.Contains(p.Groups, uint32(group)))
}

func peerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("read peer: %w", err)
	}
	var (
		p       Peer
		sockErr error
	)
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); sockErr != nil {
			return
		}
		p = Peer{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid, Groups: peerGroups(fd)}
	})
	if err == nil {
		err = sockErr
	}
	if err != nil {
		return Peer{}, fmt.Errorf("read peer: %w", err)
	}
	return p, nil
}

// peerGroups returns the supplementary groups of the peer from the kernel: /etc/group may differ.
// If the peer has more groups than fit, it returns none, which only removes rights.
func peerGroups(fd uintptr) []uint32 {
	groups := make([]uint32, 256)
	size := uint32(len(groups) * 4)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil
	}
	return groups[:size/4]
}
