// SPDX-License-Identifier: Apache-2.0

package connectortest

import (
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/connector"
)

const (
	// Directory is the claimed directory of the fake's devices.
	Directory = "/dev/fake"
	// GranularityBytes is the granularity of the fake's pool.
	GranularityBytes = 4 << 20
	capacityBytes    = 1 << 30
)

// A Flaw is a defect of a connector.
type Flaw string

// The flaws. The zero value means none.
const (
	// WrongSize: it makes a larger volume than requested.
	WrongSize Flaw = "wrong size"
	// LiesOfSize: it reports another size than the device's.
	LiesOfSize Flaw = "lies of the size"
	// LiesOfIdentity: it reports another device's identity.
	LiesOfIdentity Flaw = "lies of the identity"
	// LiesOfPath: it reports another path than the device's.
	LiesOfPath Flaw = "lies of the path"
	// ForgetsOp: it does not record which op made a volume.
	ForgetsOp Flaw = "forgets the op"
	// TakesOver: it treats another op's volume as this op's.
	TakesOver Flaw = "takes over"
	// RefusesAgain: it refuses a repeated create.
	RefusesAgain Flaw = "refuses again"
	// IgnoresIdentity: it deletes and extends any device with the name.
	IgnoresIdentity Flaw = "ignores the identity"
	// Shrinks: it makes a volume smaller.
	Shrinks Flaw = "shrinks"
	// Dirty: a new volume has old data.
	Dirty Flaw = "dirty"
	// LosesData: an extended volume is empty.
	LosesData Flaw = "loses data"
	// OnlyOnce: it fails to delete an absent volume.
	OnlyOnce Flaw = "only once"
	// LeavesDevice: it reports a delete, but the device still exists.
	LeavesDevice Flaw = "leaves the device"
	// DeletesOpen: it deletes an open volume.
	DeletesOpen Flaw = "deletes what is open"
	// SaysNothing: it answers with an empty volume for an absent one.
	SaysNothing Flaw = "says nothing"
	// AnyProtocol: it does not check the protocol number.
	AnyProtocol Flaw = "any protocol"
	// Rounds: it accepts a size that is not a multiple.
	Rounds Flaw = "rounds"
	// NoGranularity: it does not report its granularity.
	NoGranularity Flaw = "no granularity"
)

// The flaws of a target.
const (
	// ConnectsOnce: it refuses to connect a connected volume.
	ConnectsOnce Flaw = "connects once"
	// ConnectsAny: it makes up a volume that the target does not have.
	ConnectsAny Flaw = "connects any"
	// EndsShared: it ends a shared session with the first of two volumes.
	EndsShared Flaw = "ends what is shared"
	// LeavesSession: it does not end the session of the last volume.
	LeavesSession Flaw = "leaves the session"
	// DisconnectsOpen: it disconnects an open volume.
	DisconnectsOpen Flaw = "disconnects what is open"
	// DisconnectsOther: it disconnects any device with the name.
	DisconnectsOther Flaw = "disconnects another"
	// DisconnectsOnce: it fails to disconnect a volume that is not connected.
	DisconnectsOnce Flaw = "disconnects once"
)

// The flaws of a storage that copies.
const (
	// CopiesNothing: it reports a copy that it has not made.
	CopiesNothing Flaw = "copies nothing"
	// CopiesMore: it changes bytes after the range.
	CopiesMore Flaw = "copies more"
	// CopiesOnce: it refuses a repeated copy.
	CopiesOnce Flaw = "copies once"
	// CopiesAny: it copies between any devices with the names.
	CopiesAny Flaw = "copies any"
	// CopiesLate: it writes the copied data again some time later.
	CopiesLate Flaw = "copies late"
	// CopiesBeyond: it accepts a range that the source does not have.
	CopiesBeyond Flaw = "copies beyond"
)

// Fake is a connector and its storage.
type Fake struct {
	// Dir has the volumes, as files.
	Dir  string
	Flaw Flaw
	// Target: it makes no volumes, and connects the volumes of AddVolume, which share a session.
	Target bool
	// Copies: it has the verb copy.
	Copies bool
}

type meta struct{ Identity, OpID string }

func (f Fake) bytesOf(name string) string { return filepath.Join(f.Dir, name+".raw") }
func (f Fake) metaOf(name string) string  { return filepath.Join(f.Dir, name+".json") }
func (f Fake) openOf(name string) string  { return filepath.Join(f.Dir, name+".open") }

func absent(name string) error {
	return connector.Errorf(connector.CodeNotFound, "there is no volume %s", name)
}
