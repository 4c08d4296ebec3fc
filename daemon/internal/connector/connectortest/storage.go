// SPDX-License-Identifier: Apache-2.0

package connectortest

import (
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/connector"
)

const (
	// Directory is where the devices of the fake are said to be.
	Directory = "/dev/fake"
	// GranularityBytes is what it rounds to.
	GranularityBytes = 4 << 20
	capacityBytes    = 1 << 30
)

// A Flaw is what a connector does wrong.
type Flaw string

// The flaws. The zero value is none.
const (
	// WrongSize: it makes a volume that is larger than was asked for.
	WrongSize Flaw = "wrong size"
	// LiesOfSize: it says another size than the device has.
	LiesOfSize Flaw = "lies of the size"
	// LiesOfIdentity: it says that it is another device.
	LiesOfIdentity Flaw = "lies of the identity"
	// LiesOfPath: it says that the device is elsewhere.
	LiesOfPath Flaw = "lies of the path"
	// ForgetsOp: it does not keep which op has made a volume.
	ForgetsOp Flaw = "forgets the op"
	// TakesOver: it takes what another op has made for what this one has.
	TakesOver Flaw = "takes over"
	// RefusesAgain: it refuses a create that it has done.
	RefusesAgain Flaw = "refuses again"
	// IgnoresIdentity: it deletes and extends whatever has the name.
	IgnoresIdentity Flaw = "ignores the identity"
	// Shrinks: it makes a volume smaller.
	Shrinks Flaw = "shrinks"
	// Dirty: a new volume holds what was there before.
	Dirty Flaw = "dirty"
	// LosesData: a volume that is extended is empty.
	LosesData Flaw = "loses data"
	// OnlyOnce: it fails to delete what is gone.
	OnlyOnce Flaw = "only once"
	// LeavesDevice: it says that it has deleted what is there.
	LeavesDevice Flaw = "leaves the device"
	// DeletesOpen: it deletes what is open.
	DeletesOpen Flaw = "deletes what is open"
	// SaysNothing: it has an absent volume as one that there is nothing to say of.
	SaysNothing Flaw = "says nothing"
	// AnyProtocol: it does not look at the number of the protocol.
	AnyProtocol Flaw = "any protocol"
	// Rounds: it accepts a size that is no multiple.
	Rounds Flaw = "rounds"
	// NoGranularity: it does not say what it rounds to.
	NoGranularity Flaw = "no granularity"
)

// The flaws of a target.
const (
	// ConnectsOnce: it refuses to connect what is connected.
	ConnectsOnce Flaw = "connects once"
	// ConnectsAny: it makes up a volume that the target does not have.
	ConnectsAny Flaw = "connects any"
	// EndsShared: it ends what two volumes share with the first of them.
	EndsShared Flaw = "ends what is shared"
	// LeavesSession: it leaves the session of the last volume.
	LeavesSession Flaw = "leaves the session"
	// DisconnectsOpen: it takes away what is open.
	DisconnectsOpen Flaw = "disconnects what is open"
	// DisconnectsOther: it takes away whatever has the name.
	DisconnectsOther Flaw = "disconnects another"
	// DisconnectsOnce: it fails to disconnect what is not connected.
	DisconnectsOnce Flaw = "disconnects once"
)

// The flaws of a storage that copies.
const (
	// CopiesNothing: it says that it has copied, and has not.
	CopiesNothing Flaw = "copies nothing"
	// CopiesMore: it changes what is behind the range.
	CopiesMore Flaw = "copies more"
	// CopiesOnce: it refuses to copy what it has copied.
	CopiesOnce Flaw = "copies once"
	// CopiesAny: it copies whatever has the names.
	CopiesAny Flaw = "copies any"
	// CopiesLate: it writes once more what it has copied, some time later.
	CopiesLate Flaw = "copies late"
	// CopiesBeyond: it takes a range that the source does not have.
	CopiesBeyond Flaw = "copies beyond"
)

// Fake is a connector and its storage.
type Fake struct {
	// Dir has the volumes, as files.
	Dir  string
	Flaw Flaw
	// Target: it makes no volumes, and connects those that AddVolume has made. They share a
	// session.
	Target bool
	// Copies: it has the verb copy.
	Copies bool
}

// meta is what is kept of a volume beside its bytes.
type meta struct{ Identity, OpID string }

func (f Fake) bytesOf(name string) string { return filepath.Join(f.Dir, name+".raw") }
func (f Fake) metaOf(name string) string  { return filepath.Join(f.Dir, name+".json") }
func (f Fake) openOf(name string) string  { return filepath.Join(f.Dir, name+".open") }

func absent(name string) error {
	return connector.Errorf(connector.CodeNotFound, "there is no volume %s", name)
}
