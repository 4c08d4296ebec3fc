// SPDX-License-Identifier: Apache-2.0

// Package protocol describes a program of Volferry to one of another version: the number of its
// protocol, and its features by name.
package protocol

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/version"
)

// Number is the protocol of this program. It grows with each version that adds a field to a
// request or a feature to a program. Programs older than announcements have protocol 1, and refuse
// unknown fields.
const (
	Number = 2
	first  = 1
)

// OptionalFields is the feature to ignore unknown fields of a newer program's request that does
// not need them.
const OptionalFields = "optional_fields"

// BaseImages is the feature to support linked clones, which a program without it would treat as
// independent volumes.
const BaseImages = "base_images"

// Slices is the feature to support volumes that are only the first part of their image.
const Slices = "slices"

// LUKS is the feature to support volumes that QEMU encrypts: a program without it would give a
// guest ciphertext as its disk.
const LUKS = "luks"

// RetypeOptions is the feature to limit the bandwidth of a retype's move, and to delete its
// source.
const RetypeOptions = "retype_options"

// RetypeTarget is the feature to accept a destination and a method for a retype's move.
const RetypeTarget = "retype_target"

// RetypeFormat is the feature to change the format of a volume in a retype's move.
const RetypeFormat = "retype_format"

// LiveShared is the feature to move a volume while guests on several hosts write to it.
const LiveShared = "live_shared"

// OpWait is the feature to delay the answer about an op until its end or for the requested time.
const OpWait = "op_wait"

// ThrottleWriters is the feature to throttle, on request, guests that write to a moving volume
// faster than the copy.
const ThrottleWriters = "throttle_writers"

// DrainLiveShared is the feature to drain volumes of several instances while the guests write.
const DrainLiveShared = "drain_live_shared"

// DrainPauseAll is the feature to drain volumes of several instances with all guests paused.
const DrainPauseAll = "drain_pause_all"

// KeepBase is the feature to move a linked clone and keep its base images.
const KeepBase = "keep_base"

// DrainVerify is the feature to accept how a drain verifies its copies.
const DrainVerify = "drain_verify"

// Identities is the feature to store the identity of a volume's device.
const Identities = "identities"

// Allocation is the feature to allocate the file of a move thin or thick, as requested.
const Allocation = "allocation"

// Checkpoints is the feature to drop the dirty bitmaps of a volume in a move only if requested.
const Checkpoints = "checkpoints"

// DrainCheckpoints is the feature to drop the dirty bitmaps of a drain's volumes if requested.
const DrainCheckpoints = "drain_checkpoints"

// Pages is the feature to read a list page by page. The registry sends the whole list to programs
// without it.
const Pages = "pages"

// features are the features of this program, oldest first. A name is never reused, and stays while
// a program of an adjacent version may need it.
var features = []string{OptionalFields, BaseImages, Slices, RetypeOptions, LiveShared, OpWait, ThrottleWriters, DrainLiveShared, RetypeTarget, RetypeFormat, LUKS, DrainPauseAll, KeepBase, DrainVerify, Identities, Allocation, Checkpoints, Pages, DrainCheckpoints}

// The headers of requests and answers between programs.
const (
	versionHeader  = "Volferry-Version"
	protocolHeader = "Volferry-Protocol"
	featuresHeader = "Volferry-Features"
	needsHeader    = "Volferry-Needs"
)

// Announcement describes a program.
type Announcement struct {
	// Version is for display; "" for a program older than announcements.
	Version  string
	Protocol int
	Features []string
}

// Own returns the announcement of this program.
func Own() Announcement {
	return Announcement{Version: version.String(), Protocol: Number, Features: slices.Clone(features)}
}

// Announce sets this program's announcement in the header of a request or answer.
func Announce(h http.Header) {
	h.Set(versionHeader, version.String())
	h.Set(protocolHeader, strconv.Itoa(Number))
	h.Set(featuresHeader, strings.Join(features, ", "))
}

// AnnounceFor sets the protocol of another program, which made the request; 0 announces nothing.
func AnnounceFor(h http.Header, number int) {
	if number > 0 {
		h.Set(protocolHeader, strconv.Itoa(number))
	}
}

// Remove removes the announcement from the header of an answer of another program that is passed
// on.
func Remove(h http.Header) {
	for _, name := range []string{versionHeader, protocolHeader, featuresHeader} {
		h.Del(name)
	}
}

// AnnouncedIn returns the announcement in a header. Without a readable announcement, the sender
// has the first protocol. The returned strings are short and printable, whatever the header
// contains.
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
	// maxName limits the name of a feature, and a version.
	maxName  = 64
	maxNames = 256
)

// names parses a list of features and skips invalid names.
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

// Lacks returns the needed features that a program lacks.
func (a Announcement) Lacks(needs []string) []string {
	var lacking []string
	for _, need := range needs {
		if !slices.Contains(a.Features, need) {
			lacking = append(lacking, need)
		}
	}
	return lacking
}

// LacksOfOurs returns the features of this program that another program lacks.
func (a Announcement) LacksOfOurs() []string { return a.Lacks(features) }

// String returns the version, for display.
func (a Announcement) String() string {
	if a.Version == "" {
		return "an older version"
	}
	return a.Version
}
