// SPDX-License-Identifier: Apache-2.0

// Package protocol describes a program of Volferry to one of another version: the number of its
// protocol, and its features by name.
package protocol

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/volferry/volferry/internal/printable"
	"github.com/volferry/volferry/internal/version"
)

// Number is the protocol of this program. It increases with each version that adds a field to a
// request or a feature to a program. A sender without an announcement, such as curl, has protocol
// 1.
const (
	Number = 1
	first  = 1
)

// Pages is the feature to read a list page by page. The registry sends pages to a program with this
// feature, and the whole list to others.
const Pages = "pages"

// features are the features of this program, oldest first. A name is never reused, and stays while
// a program of an adjacent version may need it.
var features = []string{Pages}

// The headers of requests and answers between programs.
const (
	versionHeader  = "Volferry-Version"
	protocolHeader = "Volferry-Protocol"
	featuresHeader = "Volferry-Features"
	needsHeader    = "Volferry-Needs"
)

// Announcement describes a program.
type Announcement struct {
	// Version is for display; "" for a sender without an announcement.
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

// AnnounceFor sets the protocol of another program, for its request that this program passes on.
func AnnounceFor(h http.Header, number int) { h.Set(protocolHeader, strconv.Itoa(number)) }

// Remove removes the announcement from the header of another program's answer before the answer is
// passed on.
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
	if v := h.Get(versionHeader); len(v) <= maxName && printable.Text(v) == v {
		a.Version = v
	}
	return a
}

const (
	maxName  = 64
	maxNames = 256
)

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
		return "an unknown version"
	}
	return a.Version
}
