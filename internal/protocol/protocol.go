// SPDX-License-Identifier: Apache-2.0

// Package protocol says what one program of Volferry knows of another that may be of
// another version: the number of the protocol that it speaks, and the features that it has,
// by name. It owns how they are announced and how a request says what it needs. It must not
// know what a feature does.
package protocol

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/version"
)

// Number is the protocol of this program. It grows with each version in which a request got
// a field or a program got a feature. A program that announces nothing speaks
// protocol 1: it is older than announcements, and refuses fields that it does not know.
const (
	Number = 2
	first  = 1
)

// OptionalFields is the feature to take a request of a newer program which has fields that
// this one does not know, where the request does not need them.
const OptionalFields = "optional_fields"

// BaseImages is the feature to know that a volume may be a linked clone: a program without it
// would take such a volume for one that stands alone.
const BaseImages = "base_images"

// Slices is the feature to know volumes that are only the beginning of what is at their path.
const Slices = "slices"

// LUKS is the feature to know volumes that QEMU encrypts: a program without it would give a guest
// ciphertext for its disk.
const LUKS = "luks"

// RetypeOptions is the feature to move a volume for a retype with the bandwidth that is asked for,
// and to delete its source.
const RetypeOptions = "retype_options"

// RetypeTarget is the feature to move a volume for a retype to where that is asked for, by the
// method that is asked for.
const RetypeTarget = "retype_target"

// RetypeFormat is the feature to give a volume another format by the move of a retype.
const RetypeFormat = "retype_format"

// LiveShared is the feature to move a volume while its guests on several hosts write: a host with
// it can follow what its guests write.
const LiveShared = "live_shared"

// OpWait is the feature to answer the question how an op is only once the op is over, or after as
// long as the question says: whoever waits for the end of an op then hears of it at once.
const OpWait = "op_wait"

// ThrottleWriters is the feature to hold back what guests write, on request, while their volume
// moves and they write faster than it can be copied.
const ThrottleWriters = "throttle_writers"

// DrainLiveShared is the feature to move the volumes of a drain that several instances have while
// their guests write.
const DrainLiveShared = "drain_live_shared"

// DrainPauseAll is the feature to move the volumes of a drain that several instances have with all
// their guests paused.
const DrainPauseAll = "drain_pause_all"

// KeepBase is the feature to leave the base images of a linked clone below it when it moves.
const KeepBase = "keep_base"

// DrainVerify is the feature to verify the copies of a drain as that is asked for.
const DrainVerify = "drain_verify"

// Identities is the feature to store what the device of a volume says of itself.
const Identities = "identities"

// Allocation is the feature to give the file that a move makes the room that is asked for.
const Allocation = "allocation"

// Checkpoints is the feature to lose the dirty bitmaps of a volume by a move only where that is
// asked for.
const Checkpoints = "checkpoints"

// DrainCheckpoints is the feature to lose the dirty bitmaps of the volumes of a drain where that is
// asked for.
const DrainCheckpoints = "drain_checkpoints"

// Pages is the feature to read a list a page at a time. The registry answers a program that
// announces it with pages, and every other one with the whole list.
const Pages = "pages"

// features are those of this program, oldest first. A name is never reused, and never taken out
// while a program of a neighbouring version may ask for it.
var features = []string{OptionalFields, BaseImages, Slices, RetypeOptions, LiveShared, OpWait, ThrottleWriters, DrainLiveShared, RetypeTarget, RetypeFormat, LUKS, DrainPauseAll, KeepBase, DrainVerify, Identities, Allocation, Checkpoints, Pages, DrainCheckpoints}

// The headers of every request and answer between programs.
const (
	versionHeader  = "Volferry-Version"
	protocolHeader = "Volferry-Protocol"
	featuresHeader = "Volferry-Features"
	needsHeader    = "Volferry-Needs"
)

// Announcement is what a program says of itself.
type Announcement struct {
	// Version is for people; "" of a program that is older than announcements.
	Version  string
	Protocol int
	Features []string
}

// Own is the announcement of this program.
func Own() Announcement {
	return Announcement{Version: version.String(), Protocol: Number, Features: slices.Clone(features)}
}

// Announce puts the announcement of this program into the header of a request or an answer.
func Announce(h http.Header) {
	h.Set(versionHeader, version.String())
	h.Set(protocolHeader, strconv.Itoa(Number))
	h.Set(featuresHeader, strings.Join(features, ", "))
}

// AnnounceFor puts into the header of a request that a program of this protocol has made it; 0 is
// of a program that announces nothing.
func AnnounceFor(h http.Header, number int) {
	if number > 0 {
		h.Set(protocolHeader, strconv.Itoa(number))
	}
}

// Remove takes an announcement out of a header: that of a program behind the one that
// answers.
func Remove(h http.Header) {
	for _, name := range []string{versionHeader, protocolHeader, featuresHeader} {
		h.Del(name)
	}
}

// AnnouncedIn returns what the sender of a header announces. Who announces nothing, or what
// cannot be read, speaks the first protocol. Nothing that it returns is longer than a
// line or has anything but visible characters, whoever sent it.
func AnnouncedIn(h http.Header) Announcement {
	a := Announcement{Protocol: first}
	number, err := strconv.Atoi(h.Get(protocolHeader))
	if err != nil || number < first {
		return a
	}
	a.Protocol = number
	a.Features = names(h.Get(featuresHeader))
	if v := h.Get(versionHeader); len(v) <= maxName && api.Printable(v) == v {
		a.Version = v
	}
	return a
}

const (
	// maxName bounds the name of a feature, and a version.
	maxName = 64
	// maxNames bounds how many features are read.
	maxNames = 256
)

// names reads a list of features, without what cannot be the name of one.
func names(list string) []string {
	var all []string
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		if isName(name) && len(all) < maxNames {
			all = append(all, name)
		}
	}
	return all
}

func isName(name string) bool {
	return name != "" && len(name) <= maxName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// IsNewer reports whether the program speaks a later protocol than this one.
func (a Announcement) IsNewer() bool { return a.Protocol > Number }

// Lacks returns which of the features a program does not have.
func (a Announcement) Lacks(needs []string) []string {
	var lacking []string
	for _, need := range needs {
		if !slices.Contains(a.Features, need) {
			lacking = append(lacking, need)
		}
	}
	return lacking
}

// LacksOfOurs returns the features of this program that another does not have.
func (a Announcement) LacksOfOurs() []string { return a.Lacks(features) }

// String is the version, for people.
func (a Announcement) String() string {
	if a.Version == "" {
		return "an older version"
	}
	return a.Version
}
