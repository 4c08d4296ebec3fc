// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab/syscalls"
)

// The deaths and hangs of qemu-storage-daemon at its system calls on the qcow2 image that it serves
// to a copy: src, which it reads, or dst, which is read back besides.

func serverDies() *callBlow {
	return &callBlow{program: syscalls.StorageDaemon, does: syscalls.Kill, image: anywhere, back: func(*callGuest, *testing.T) {}}
}

func serverHangs() *callBlow {
	return &callBlow{program: syscalls.StorageDaemon, does: syscalls.Stop, image: anywhere, back: childrenGoOn}
}

// Of the requests for which an image is served.
var serverRequests = map[string]func() *callTrial{
	"raw to qcow2":          func() *callTrial { return reformatInCalls(api.FormatQcow2) },
	"qcow2 to raw":          func() *callTrial { return reformatInCalls(api.FormatRaw) },
	"raw to qcow2, stopped": func() *callTrial { return reformatInCalls(api.FormatQcow2).stopped() },
	"qcow2 to raw, stopped": func() *callTrial { return reformatInCalls(api.FormatRaw).stopped() },
}

func TestKillOfTheServerOfAnImageAtEverySystemCallOnIt(t *testing.T) {
	leftToTestE2E(t)
	requests := serverRequests
	if !crash.Every() {
		const one = "raw to qcow2, stopped"
		requests = map[string]func() *callTrial{one: requests[one]}
	}
	forEachCall(t, requests, serverDies)
}

func TestAHangOfTheServerOfAnImageAtEverySystemCallOnIt(t *testing.T) {
	crash.LeftToTestCrash(t)
	forEachCall(t, serverRequests, serverHangs)
}
