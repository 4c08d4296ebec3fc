// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

const (
	// maxText bounds what is only carried along: names that libvirt chose,
	// versions, words of the audit trail.
	maxText = 255
	// maxPath is the kernel's PATH_MAX without its final zero.
	maxPath = 4095
	// sectorBytes divides the size of every disk.
	sectorBytes = 512
)

var (
	nameRule   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`)
	deviceRule = regexp.MustCompile(`^[a-z]{2,4}[a-z0-9]{0,12}$`)
)

func invalid(format string, args ...any) error {
	return api.Errorf(api.CodeInvalidArgument, format, args...)
}

// checkName checks a name that Volferry's users give: of a volume, a type, a
// host.
func checkName(what, name string) error {
	if !nameRule.MatchString(name) {
		return invalid("the %s %s is not allowed: it must begin with a letter or digit, go on with letters, digits, dots, underscores and hyphens, and have at most 255 characters", what, quote(name))
	}
	return nil
}

// checkText checks a text that comes from elsewhere: it must be printable and
// short.
func checkText(what, text string) error {
	if len(text) > maxText {
		return invalid("the %s %s is not allowed: it is longer than %d bytes", what, quote(text), maxText)
	}
	return checkPrintable(what, text)
}

func checkRequired(what, text string) error {
	if text == "" {
		return invalid("the %s is missing", what)
	}
	return checkText(what, text)
}

func checkPrintable(what, text string) error {
	if !utf8.ValidString(text) {
		return invalid("the %s %s is not allowed: it is not UTF-8", what, quote(text))
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return invalid("the %s %s is not allowed: it has a character that cannot be printed", what, quote(text))
	}
	return nil
}

// checkID checks an id that the caller chose.
func checkID(what, id string) error {
	u, err := uuid.Parse(id)
	if err != nil || u.String() != id {
		return invalid("the %s %s is not a UUID in lower case", what, quote(id))
	}
	return nil
}

func checkDevice(device string) error {
	if !deviceRule.MatchString(device) {
		return invalid("the device %s is not allowed: it must be a name like vda", quote(device))
	}
	return nil
}

// checkLocation checks where a volume is or shall be. The path may be missing
// where pool and name are given: such a place is still to be made.
func checkLocation(what string, l api.Location) error {
	if err := checkText("pool of the "+what, l.Pool); err != nil {
		return err
	}
	if err := checkText("name in the pool of the "+what, l.Name); err != nil {
		return err
	}
	switch {
	case l.Path == "" && (l.Pool == "" || l.Name == ""):
		return invalid("the %s has neither a path nor a pool with a name", what)
	case l.Path == "":
	case len(l.Path) > maxPath:
		return invalid("the path of the %s is longer than %d bytes", what, maxPath)
	case !filepath.IsAbs(l.Path) || filepath.Clean(l.Path) != l.Path || l.Path == "/":
		return invalid("the path %s of the %s is not a clean absolute path", quote(l.Path), what)
	}
	if err := checkPrintable("path of the "+what, l.Path); err != nil {
		return err
	}
	if !l.Format.Valid() {
		return invalid("the format %s of the %s is not one of raw and qcow2", quote(string(l.Format)), what)
	}
	if l.SizeBytes <= 0 || l.SizeBytes%sectorBytes != 0 {
		return invalid("the size %d of the %s is not a positive multiple of %d bytes", l.SizeBytes, what, sectorBytes)
	}
	return nil
}

const (
	// maxErrorMessage is far above the longest message of a daemon, with what qemu-img
	// said.
	maxErrorMessage = 16 << 10
	// maxErrorDetails bounds, as JSON, what a daemon says beside it.
	maxErrorDetails = 16 << 10
)

// checkError checks an error that a daemon tells, nil if there is none. Its text is the
// daemon's, and may be that of another program: see printableError.
func checkError(what string, e *api.Error) error {
	if e == nil {
		return nil
	}
	if err := checkText("code of the "+what, string(e.Code)); err != nil {
		return err
	}
	if len(e.Message) > maxErrorMessage {
		return invalid("the %s is longer than %d bytes", what, maxErrorMessage)
	}
	details, err := json.Marshal(e.Details)
	if err != nil {
		return invalid("the details of the %s cannot be written as JSON: %v", what, err)
	}
	if len(details) > maxErrorDetails {
		return invalid("the details of the %s have %d bytes as JSON and may have %d", what, len(details), maxErrorDetails)
	}
	return nil
}

// printableError is an error that was checked, as people are shown it.
func printableError(e *api.Error) *api.Error {
	if e == nil {
		return nil
	}
	return &api.Error{Code: e.Code, Message: api.Printable(e.Message), Details: api.PrintableDetails(e.Details)}
}

// quote shows a text that may be anything without repeating all of it.
func quote(text string) string { return `"` + clip(text) + `"` }

// clip is quote without the quotes.
func clip(text string) string {
	const enough = 64
	return clipTo(enough, text)
}

// clipTo bounds a text that may be anything, and shows what cannot be printed as U+FFFD.
func clipTo(enough int, text string) string {
	if len(text) > enough {
		text = text[:enough] + "…"
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text), "\uFFFD")
}
